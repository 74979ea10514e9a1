// One cell: what was started, what became of it, why, and how fast it was.
function entry(name, ...value) {
  return value.flat().some((one) => one !== "" && one !== undefined && one !== null) ? [h("dt", {}, name), h("dd", {}, ...value)] : [];
}
function excerptOf(cell) {
  const lines = cell.excerpt || [];
  if (!lines.length) return cell.quote ? h("pre", {}, cell.quote) : null;
  return h("pre", { class: "excerpt" }, lines.map(([number, text]) => {
    const whole = [h("span", { class: "number" }, `${String(number).padStart(6)}  `), text];
    return number === cell.line ? h("mark", {}, ...whole) : h("span", {}, ...whole, "\n");
  }));
}
function knownOf(cell) {
  return (cell.known || []).map((one) => h("div", { class: "cause" },
    h("h3", {}, `${one.unproven ? "Possible" : `Known${one.status === "established" ? "" : ` (${one.status})`}`}: ${one.title}`),
    h("p", {}, one.cause), one.unproven ? h("p", {}, h("b", {}, "Proven if "), one.unproven) : null,
    one.fix ? h("p", {}, h("b", {}, "Cure: "), one.fix) : null, (one.links || []).map((to) => h("p", {}, link(to)))));
}
function ranksOf(cell) {
  if (!cell.ranks) return null;
  const rows = cell.ranks.map(([rank, node, platform, fate, own]) => h("tr", {}, h("td", {}, String(rank)), h("td", {}, node),
    h("td", {}, platform), h("td", { class: own ? "different" : null }, fate)));
  return h("div", {}, h("h3", {}, "Ranks"), table(["rank", "node", "platform", "what became of it"], rows));
}
function numbersOf(cell) {
  if (!cell.series) return null;
  const rows = cell.series.flatMap((one) => one.points.map(([bytes, value, low, high]) => h("tr", {},
    [one.metric, one.dtype === "none" ? "" : size(bytes), one.dtype, one.place ? "in place" : "", `${value} ${one.unit}`,
      low === high ? "" : `${low} to ${high}`].map((text) => h("td", {}, text)))));
  return h("details", {}, h("summary", {}, `Numbers (${rows.length})`), table(["metric", "size", "type", "", "value", "of repeats"], rows));
}
function siblings(cell) {
  const other = (one) => AXES.every((axis) => axis === "transport" || (one.axes || {})[axis] === (cell.axes || {})[axis]);
  return CELLS.filter((one) => one !== cell && one.matrix === cell.matrix && other(one) && one.curve === cell.curve);
}
// The text for the upstream's tracker is a file beside the page; the archive with it is a command away.
function issueOf(cell) {
  const file = (FACTS.issues || {})[cell.key || ""];
  return file ? [h("a", { href: file.split("/").map(encodeURIComponent).join("/"), class: "upstream" }, file), ", or ", h("code", {}, `hetgpu bundle ${FACTS.run} ${cell.id}`)] : "";
}
function nodesOf(cell) {
  const one = FACTS.placements.find((place) => place.name === `${cell.matrix}-${(cell.axes || {}).placement}`);
  return one ? h("details", { class: "environment" }, h("summary", {}, `Its nodes: ${one.nodes.join(", ")}`), ...nodesTable(one)) : "";
}
function drawCell(place, id) {
  const cell = BY_ID.get(id);
  place.hidden = !id;
  if (!id) return place.replaceChildren();
  if (!cell) return place.replaceChildren(h("p", { class: "warning" }, `There is no cell ${id} in this run.`));
  place.className = cell.verdict;
  const [, meaning] = VERDICTS[cell.verdict];
  place.replaceChildren(
    h("p", { style: "float:right" }, h("a", { href: address({ cell: "" }), class: "close" }, "close (Esc)")),
    h("h2", {}, cell.id, " ", h("span", { class: "badge" }, cell.flaky ? `${meaning}, flaky` : meaning)), h("p", {}, cell.headline),
    h("dl", {}, entry("signature", cell.key ? h("a", { href: address({ cell: "", signature: cell.key }) }, h("code", {}, cell.key)) : ""),
      entry("since", (FACTS.since || {})[cell.id]), entry("why", cell.why), entry("expected", cell.expected), entry("issue", cell.issue ? link(cell.issue) : ""),
      entry("for upstream", issueOf(cell)), (cell.attempts || []).map((line, place) => entry(`attempt ${place + 1}`, line)), entry("debug rerun", cell.debug), entry("took", duration(cell.seconds), cell.started ? `, from ${cell.started}` : ""),
      entry("measured", (cell.measured || []).join(", ")), entry("tests", cell.tests), entry("MPI", cell.stack), entry("data went by", cell.carried || (cell.transports || []).join(", ")),
      entry("wire", cell.wire ? `${cell.wire.gbs ? `${cell.wire.gbs.toPrecision(3)} GB/s, ` : ""}${cell.wire.told}` : ""), (cell.notes || []).map((note) => entry("note", note)),
      entry("trace", cell.trace ? h("a", { href: cell.trace.split("/").map(encodeURIComponent).join("/"), class: "log" }, cell.trace) : ""), entry("log", cell.log ? h("a", { href: cell.log.split("/").map(encodeURIComponent).join("/"), class: "log" }, cell.log) : cell.lost ? `${cell.lost} is not there any more` : "")),
    ...(cell.quote ? [h("h3", {}, `Line ${cell.line} of its log`)] : []), excerptOf(cell) || "", ...knownOf(cell), ranksOf(cell) || "", timesOf(cell) || "",
    ...(cell.findings ? [h("h3", {}, "What each judge found"), h("ul", {}, cell.findings.map(([judge, kind, why]) => h("li", {}, `${judge} (${kind.replace(/_/g, " ")}): ${why}`)))] : []),
    ...(cell.others ? [h("p", {}, "Also in the log: ", cell.others.map(([key, line]) => `${key} (line ${line})`).join(", "))] : []),
    ...(cell.command ? [h("h3", {}, "Command"), h("pre", { class: "command" }, cell.command)] : []),
    h("h3", {}, "Run it again"), h("pre", {}, cell.again || ""),
    ...(cell.facts ? [h("details", {}, h("summary", {}, "Versions and settings"), h("dl", {}, Object.entries(cell.facts).flatMap(([name, value]) => entry(name, value))))] : []),
    nodesOf(cell), h("div", { class: "curve" }), numbersOf(cell) || "");
  if (cell.timeline) drawTimes(place.querySelector(".times"), cell.timeline);
  if (curves(cell).length) chart(place.querySelector(".curve"), [cell, ...siblings(cell)], cell);
  place.style.scrollMarginTop = `${document.getElementById("filters").offsetHeight + 12}px`;
  place.focus();
  place.scrollIntoView({ block: "start" });
}
