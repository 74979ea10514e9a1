// One cell over all runs: since when it is as it is, what a chosen run had, and its speeds.
function outcomeAt(cell, place) {
  let end = 0;
  for (const [number, count] of cell.outcomes || []) {
    end += count;
    if (place < end) return number === null ? null : FACTS.outcomes[number];
  }
  return null;
}
function differences(was, now) {
  if (!was || !now) return [];
  const names = [...new Set([...Object.keys(was.facts), ...Object.keys(now.facts)])];
  return names.filter((name) => was.facts[name] !== now.facts[name]).map((name) => `${name} ${was.facts[name] || "none"} became ${now.facts[name] || "none"}`);
}
function entryOf(name, ...value) {
  return value.flat().some((one) => one !== "" && one !== undefined && one !== null) ? [h("dt", {}, name), h("dd", {}, ...value)] : [];
}
function before(cell, place) {
  for (let at = place - 1; at >= 0; at -= 1) if (outcomeAt(cell, at)) return at;
  return -1;
}
function runOf(cell, place) {
  const run = RUNS[place];
  const one = outcomeAt(cell, place);
  if (!run) return "";
  if (!one) return [h("h3", {}, `Run ${run.id}`), h("p", {}, `${day(run)} UTC: this run has no such cell.`)];
  const last = before(cell, place);
  const changes = [...differences(last < 0 ? null : outcomeAt(cell, last), one), ...FACTS.between.slice(Math.max(last, 0) + 1, place + 1).flat()];
  const page = run.page ? h("a", { class: "page", href: `${run.page.split("/").map(encodeURIComponent).join("/")}#cell=${encodeURIComponent(cell.scenario)}` }, run.page) : "its folder is not there any more";
  return [h("h3", {}, `Run ${run.id} `, h("span", { class: `badge ${one.verdict}` }, VERDICTS[one.verdict][1])),
    h("dl", {}, entryOf("started", `${day(run)} UTC`), entryOf("outcome", one.name), entryOf("page of the run", page),
      entryOf("changed before it", changes.length ? h("ul", {}, changes.map((line) => h("li", {}, line))) : last < 0 ? "" : "nothing that is known")),
    h("details", {}, h("summary", {}, "Versions and settings"), h("dl", {}, Object.entries(one.facts).flatMap(([name, value]) => entryOf(name, value))))];
}
function speedTraces(cell, one) {
  const days = RUNS.map((run) => new Date(run.started * 1000).toISOString());
  const found = [{ name: one.name, x: days, y: one.values, mode: "lines+markers", type: "scatter", line: { width: 1, color: colour("link") }, marker: { size: 4, color: colour("link") }, hovertemplate: `%{y:.4g} ${one.unit}<br>%{text}`, text: RUNS.map((run) => run.id) }];
  const wire = FACTS.wires[cell.wire];
  if (wire && one.unit === "GB/s") found.push({ name: "wire", x: days, y: wire, mode: "lines", type: "scatter", line: { dash: "dash", width: 1.5, color: colour("faint") }, connectgaps: true, hovertemplate: "wire %{y:.3g} GB/s" });
  const edges = [0, ...one.steps.map((step) => step.night), RUNS.length];
  if (one.steps.length) edges.slice(0, -1).forEach((start, place) => {
    const level = place ? one.steps[place - 1].after : one.steps[0].before;
    found.push({ name: `level ${level.toPrecision(3)}`, x: [days[start], days[Math.max(start, edges[place + 1] - 1)]], y: [level, level], mode: "lines", type: "scatter", line: { width: 3, color: colour("changed") }, hoverinfo: "name", showlegend: false });
  });
  return found;
}
async function drawSpeed(place, cell, one) {
  const shapes = one.steps.map((step) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: new Date(RUNS[step.night].started * 1000).toISOString(), x1: new Date(RUNS[step.night].started * 1000).toISOString(), line: { color: colour("changed"), width: 2, dash: "dot" } }));
  await plot(place, `${one.name} over the runs`, speedTraces(cell, one), { height: 300, shapes, margin: { l: 60, r: 20, t: 10, b: 40 }, xaxis: { type: "date" }, yaxis: { title: { text: one.unit }, rangemode: "tozero" }, legend: { orientation: "h", y: -0.2 } });
}
function speedsOf(cell) {
  return (cell.speeds || []).flatMap((one) => [h("h3", {}, one.name), h("p", {}, one.shape),
    one.steps.length ? h("ul", {}, one.steps.map((step) => h("li", {}, step.line, step.changes.length ? h("ul", {}, step.changes.map((line) => h("li", {}, line))) : ""))) : "", h("div", { class: "speed" })]);
}
function drawNightCell(place, id, run) {
  const cell = BY_ID.get(id);
  place.hidden = !id;
  if (!id) return place.replaceChildren();
  if (!cell) return place.replaceChildren(h("p", { class: "warning" }, `There is no cell ${id} in these runs.`));
  place.className = cell.verdict;
  place.replaceChildren(h("p", { style: "float:right" }, h("a", { href: address({ cell: "", run: "" }), class: "close" }, "close (Esc)")),
    h("h2", {}, cell.id), (cell.lines || []).map((line) => h("p", {}, line)), h("pre", { class: "letters", "aria-label": "one letter for each run" }, cell.letters),
    h("div", { class: "run" }, ...[runOf(cell, run === null ? RUNS.length - 1 : run)].flat()), ...speedsOf(cell));
  [...place.querySelectorAll(".speed")].forEach((one, at) => drawSpeed(one, cell, cell.speeds[at]));
}
