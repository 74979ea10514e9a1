// When the ranks of a cell were there: a bar each, from its greeting to the end of its work.
const GROUPS = {
  finished: ["finished", "ok"], failed: ["crashed or failed", "new"], stuck: ["stuck", "changed"], stopped: ["stopped", "not_run"],
};
const seconds = (value) => (value === null || value === undefined ? "not known" : `${value.toFixed(3)} s`);
function timesOf(cell) {
  const times = cell.timeline;
  if (!times) return null;
  const [others, start, end] = times.rest || [0];
  const rows = times.rows.map(([rank, node, from, to, fate]) => [`${rank}`, node, fate === "never started" ? "-" : seconds(from), seconds(to), fate]);
  if (others) rows.push([`${others} others`, "", `${seconds(start)} at the earliest`, `${seconds(end)} at the latest`, ""]);
  const notes = [...(times.notes || [])];
  if (others) notes.push(`Of ${times.rows.length + others} ranks these ${times.rows.length} are kept: the first, those that fared otherwise than most, and the latest to start and to end.`);
  if (times.rows.some(([, , from, to]) => from !== null && to === null)) notes.push("Hatched: when it ended is not known; the bar goes to the job's end.");
  return h("div", { class: "times" }, h("h3", {}, "When its ranks were there"), h("div", { class: "bars" }), notes.map((note) => h("p", { class: "faint" }, note)),
    h("details", {}, h("summary", {}, `Times of ranks (${rows.length})`), h("p", { class: "faint" }, ending(times)),
      table(["rank", "node", "started", "done", "what became of it"], rows.map((row) => h("tr", {}, row.map((text) => h("td", {}, text)))))));
}
function ending(times) {
  return `After the job's start, each by its own node's clock. The job ended after ${seconds(times.seconds || 0)}${times.limit ? `; its time limit was ${duration(times.limit)}` : ""}.`;
}
// Bars of one group; those whose end is not known are hatched.
function bars(times, group, label) {
  const [name, tone] = GROUPS[group];
  const mine = times.rows.filter(([, , from, to, , of]) => of === group && (from !== null || to !== null));
  const stop = Math.max(times.seconds || 0, ...mine.map(([, , from]) => from || 0));
  const begin = ([, , from, to]) => (from === null ? Math.min(0, to) : from);
  const until = ([, , , to]) => (to === null ? stop : to);
  return mine.length ? [{
    type: "bar", orientation: "h", name, y: mine.map(label), base: mine.map(begin), x: mine.map((row) => until(row) - begin(row)),
    marker: { color: colour(tone), pattern: { shape: mine.map(([, , , to]) => (to === null ? "/" : "")), fillmode: "overlay", fgcolor: colour("paper"), fgopacity: 0.6, size: 6, solidity: 0.3 } },
    text: mine.map(([, , from, to, fate]) => `${plain(fate)}, from ${seconds(from)} to ${seconds(to)}`), textposition: "none", hovertemplate: "%{y}: %{text}<extra></extra>",
  }] : [];
}
// plotly reads a few tags and entities in what it writes: names hold none.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
async function drawTimes(place, times) {
  const label = ([rank, node]) => `rank ${rank} \u00b7 ${plain(node.length > 24 ? `${node.slice(0, 23)}\u2026` : node)}`;
  const [others, start, end] = times.rest || [0];
  const last = times.seconds || 0;
  const names = times.rows.map(label);
  const traces = Object.keys(GROUPS).flatMap((group) => bars(times, group, label));
  const never = times.rows.filter((row) => row[5] === "never started");
  const mark = (name, rows, x, symbol) => rows.length && traces.push({ type: "scatter", mode: "markers", name, y: rows.map(label), x, marker: { symbol, size: 10, color: colour("ink") }, hovertemplate: `%{y}: ${name}, %{x:.3f} s<extra></extra>` });
  mark("never started", never, never.map(() => 0), "x");
  if (times.row !== undefined) mark("last time reported", times.rows.filter(([rank]) => rank === 0), [times.row], "diamond");
  if (others && start !== null) {
    names.push(`${others} others`);
    traces.push({ type: "bar", orientation: "h", name: "others, first to last", y: [`${others} others`], base: [start], x: [(end === null ? last : end) - start], marker: { color: colour("line") }, hoverinfo: "name+y" });
  }
  // A clock that is far off would leave nothing of the others to be seen: its bars are where they say, beyond the edge.
  const far = (value) => value !== null && value >= -Math.max(last, 1) && value <= 2 * Math.max(last, 1);
  const seen = [0, last, ...times.rows.flatMap(([, , from, to]) => [from, to]).filter(far)];
  const limit = times.limit && times.limit < 1.5 * last ? times.limit : 0;
  const [low, high] = [Math.min(...seen), Math.max(...seen, limit)];
  const edge = 0.03 * Math.max(high - low, 0.001);
  const line = (at, dash) => ({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: colour("ink"), width: 1.5, dash } });
  const said = (at, text, up) => ({ x: at, yref: "paper", y: 1, yshift: up, text, showarrow: false, xanchor: "right", yanchor: "bottom" });
  const step = names.length > 24 ? 18 : 26;
  await plot(place.querySelector(".bars"), "When each rank of this cell started and ended; the table below has the numbers", traces, {
    height: 120 + step * names.length, margin: { l: 60, r: 20, t: 40, b: 76 }, barmode: "overlay", bargap: 0.3, showlegend: true, hovermode: "closest",
    xaxis: { title: { text: "seconds after the job's start" }, range: [low - edge, high + edge], zeroline: true },
    yaxis: { type: "category", categoryorder: "array", categoryarray: names, range: [names.length - 0.5, -0.5], automargin: true, tickmode: "array", tickvals: names, ticklabelstandoff: 6 },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom" },
    shapes: [line(last, "solid"), ...(limit ? [line(limit, "dash")] : [])],
    annotations: [said(last, `job's end, ${seconds(last)}`, 2), ...(limit ? [said(limit, `time limit, ${duration(limit)}`, 18)] : [])],
  });
  if (!place.querySelector(".chart")) place.querySelector("details").open = true;
}
