"""How the page looks. Changes are told by signs and lines too, not by colour alone."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b1f24; --soft: #57606a; --line: #d8dee4;
  --add: #0f6b33; --add-back: #dcf5e3; --cut: #a11b23; --cut-back: #fde7e7;
  --mod: #8a4b00; --mod-back: #fdf0d5; --same: #57606a; --bar: #b86a06; --track: #eceff2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1318; --card: #181d24; --text: #e6eaf0; --soft: #a2acb9; --line: #333b46;
    --add: #6fdc94; --add-back: #123420; --cut: #ff9c9c; --cut-back: #43191d;
    --mod: #f5c069; --mod-back: #3b2a0c; --same: #a2acb9; --bar: #e0a043; --track: #262d36;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 1rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .75rem; }
h2 small { font-weight: 400; color: var(--soft); font-size: .875rem; margin-left: .5rem; }
p { margin: .5rem 0; }
code, .value, .name {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: .875em;
}
code, .value, .name, dd { overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .625rem; padding: .875rem 1rem; }
.sides {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: .75rem;
  margin: 0;
}
.sides dt { color: var(--soft); font-size: .8125rem; }
.sides dd { margin: .125rem 0 0; }
.sides .rows { color: var(--soft); font-size: .875rem; }
.counts {
  list-style: none; display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: .75rem 0 0; padding: 0;
}
.counts li { border-left: .3125rem solid var(--tone); }
.counts b { display: block; font-size: 1.6rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.counts span { color: var(--tone); font-weight: 600; }
.counts small { display: block; color: var(--soft); }
.add { --tone: var(--add); } .cut { --tone: var(--cut); } .mod { --tone: var(--mod); } .same { --tone: var(--same); }
.bars {
  list-style: none; margin: 0; padding: 0; display: grid;
  grid-template-columns: fit-content(16rem) minmax(0, 1fr) auto; gap: .625rem .875rem;
}
.bars li { display: grid; grid-column: 1 / -1; grid-template-columns: subgrid; align-items: center; }
.bars + p { margin-bottom: 0; }
.track { height: .75rem; border-radius: .375rem; background: var(--track); overflow: hidden; }
.track i { display: block; height: 100%; min-width: 3px; border-radius: .375rem; background: var(--bar); }
.bars .number { font-variant-numeric: tabular-nums; text-align: right; }
.row { margin: 0 0 .875rem; padding: 0; overflow: hidden; }
.row > h3 {
  margin: 0; padding: .625rem 1rem; font-size: .9375rem; font-weight: 600;
  border-bottom: 1px solid var(--line); border-left: .3125rem solid var(--tone); overflow-wrap: anywhere;
}
.row > h3 .sign { color: var(--tone); margin-right: .375rem; }
table { width: 100%; border-collapse: collapse; }
.row table { table-layout: fixed; }
th, td { text-align: left; vertical-align: top; padding: .375rem .75rem; border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--soft); font-weight: 500; font-size: .8125rem; }
tbody th { font-weight: 500; overflow-wrap: anywhere; }
td .value { white-space: pre-wrap; }
tr.changed th { font-weight: 700; }
tr.changed th::before { content: "\\2260\\00a0"; color: var(--mod); }
td.past { background: var(--cut-back); box-shadow: inset .1875rem 0 var(--cut); }
td.current { background: var(--add-back); box-shadow: inset .1875rem 0 var(--add); }
td.past .value, td.current .value { font-weight: 700; }
td.past::before { content: "\\2212\\00a0"; color: var(--cut); font-weight: 700; }
td.current::before { content: "+\\00a0"; color: var(--add); font-weight: 700; }
.none { font-style: italic; color: var(--soft); }
td.past .none, td.current .none { color: inherit; }
details > summary { cursor: pointer; padding: .5rem 1rem; color: var(--soft); border-top: 1px solid var(--line); }
.scroll { overflow-x: auto; padding: 0; border-left: .3125rem solid var(--tone); }
.scroll table { width: max-content; min-width: 100%; }
.scroll th, .scroll td { max-width: 20rem; overflow-wrap: anywhere; }
.scroll tbody th { font-weight: 700; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
:focus-visible { outline: 3px solid var(--bar); outline-offset: 2px; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .875rem; }
@media (max-width: 34rem) {
  main { padding: 1rem .75rem 3rem; }
  .bars li { grid-template-columns: minmax(0, 1fr) auto; row-gap: .25rem; }
  .bars .track { grid-column: 1 / -1; grid-row: 2; }
  .row thead { position: absolute; clip-path: inset(50%); }
  .row tr { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); border-top: 1px solid var(--line); }
  .row tbody th { grid-column: 1 / -1; padding-bottom: 0; }
  .row th, .row td { border-top: 0; }
}
@media print { body { background: none; } .card { break-inside: avoid; } }
"""
