// What concerns many cells: totals, failures by signature, changes, bandwidths side by side, nodes.
function drawTotals(place, matches) {
  const shown = CELLS.filter(matches);
  const count = (verdict) => shown.filter((cell) => cell.verdict === verdict).length;
  place.replaceChildren(...Object.entries(VERDICTS).filter(([name]) => count(name)).map(([name, [, meaning]]) =>
    h("b", {}, h("span", { class: `badge ${name}` }, String(count(name))), ` ${meaning}`)),
  shown.length < CELLS.length ? h("span", { class: "faint" }, `${shown.length} of ${CELLS.length} cells`) : "");
}
function drawGroups(place, matches) {
  const groups = new Map();
  for (const cell of CELLS) {
    if (!cell.key || !matches(cell)) continue;
    groups.set(cell.key, [...(groups.get(cell.key) || []), cell]);
  }
  place.replaceChildren();
  if (!groups.size) return;
  const sorted = [...groups].sort(([, a], [, b]) => b.length - a.length);
  const most = sorted[0][1].length;
  const rows = sorted.map(([key, cells]) => h("tr", {},
    h("td", {}, h("span", { class: `bar ${cells[0].verdict}`, style: `width:${Math.round(6 * cells.length / most)}rem` }), ` ${cells.length}`),
    h("td", {}, h("a", { href: address({ signature: key, cell: "" }) }, h("code", {}, key))),
    h("td", {}, [...new Set(cells.map((cell) => cell.kind.replace(/_/g, " ")))].join(", ")),
    h("td", {}, cells.slice(0, 6).flatMap((cell, place) => [place ? ", " : "", h("a", { href: address({ cell: cell.id }) }, cell.id)]),
      cells.length > 6 ? ` and ${cells.length - 6} more` : "")));
  place.append(h("h2", {}, "Failures by signature"), table(["cells", "signature", "outcome", "of"], rows));
}
// A click on a condition leaves its cells in the matrix; a second click shows all.
function drawConditions(place) {
  const changes = FACTS.bisected || [];
  if (!CONDITIONS.length && !changes.length) return;
  const chosen = asked().get("where");
  const rows = CONDITIONS.map((one, number) => {
    const [[, where], ...facts] = one.facts;
    const name = String(number);
    return h("tr", { class: chosen === name ? "chosen" : null },
      h("td", {}, FACTS.matrices.length > 1 ? `${one.matrix}: ` : "", one.key === "any failure" ? one.key : h("code", {}, one.key), h("br"), h("span", { class: "faint" }, one.state)),
      h("td", {}, h("a", { href: address({ where: chosen === name ? "" : name, cell: "" }), "aria-current": chosen === name ? "true" : null }, where),
        h("dl", {}, facts.flatMap(([fact, text]) => [h("dt", {}, fact), h("dd", {}, text)]))));
  });
  place.replaceChildren();
  if (rows.length) place.append(h("h2", {}, "Where it fails"), table(["signature", "where"], rows));
  if (changes.length) place.append(h("h2", {}, "Where it changes"), h("ul", {}, changes.map((line) => h("li", {}, line))));
}
// Tests of users' own suites: those that fail in the fewest cells first.
function drawTests(place) {
  const tests = FACTS.tests || [];
  if (!tests.length) return;
  const cells = (labels) => labels.slice(0, 6).flatMap((label, at) => [at ? ", " : "", h("a", { href: address({ cell: label }) }, label)]).concat(labels.length > 6 ? ` and ${labels.length - 6} more` : "");
  place.append(h("h2", {}, "Tests that fail"), table(["test", "fails in", "not in"], tests.map(([name, failed, passed]) =>
    h("tr", {}, h("td", {}, h("code", {}, name)), h("td", {}, cells(failed)), h("td", {}, cells(passed))))));
}
function drawChanges(place) {
  if (!FACTS.baseline) return;
  place.append(h("h2", {}, `Since ${FACTS.baseline}`));
  if (!FACTS.changes.length) return void place.append(h("p", {}, "Every cell is what it was."));
  place.append(table(["cell", "was", "is"], FACTS.changes.map((one) => h("tr", {},
    h("td", {}, h("a", { href: address({ cell: one.id }) }, one.id)), h("td", {}, one.was), h("td", {}, one.is)))));
}
function drawBandwidth(place) {
  const sets = new Map();
  for (const cell of CELLS) {
    if (!curves(cell).length) continue;
    const others = AXES.filter((axis) => axis !== "transport").map((axis) => (cell.axes || {})[axis]).filter(Boolean);
    const name = [cell.curve, ...(FACTS.matrices.length > 1 ? [cell.matrix] : []), ...others].join(" / ");
    sets.set(name, [...(sets.get(name) || []), cell]);
  }
  if (!sets.size) return;
  const drawn = h("div", {});
  const show = () => { drawn.replaceChildren(); chart(drawn, sets.get(choice.value)); };
  const choice = h("select", { id: "curves", onchange: show }, [...sets.keys()].map((name) => h("option", { value: name }, name)));
  place.append(h("h2", {}, "Bandwidth over message size"), h("label", { for: "curves" }, "transports of"), choice, drawn);
  // Nobody waits for a chart that is not to be seen yet.
  new IntersectionObserver((seen, watch) => { if (seen.some((one) => one.isIntersecting)) { watch.disconnect(); show(); } }).observe(place);
}
// What differs between the nodes of a placement and what tells most of them; the rest behind a further click.
function nodesTable(one) {
  const row = ([fact, , differs, ...values]) => h("tr", {}, h("th", { scope: "row", class: differs ? "different" : null }, `${differs ? "≠ " : ""}${fact}`),
    values.map((value) => h("td", { class: differs ? "different" : null }, value)));
  const [first, rest] = [true, false].map((telling) => one.rows.filter((fact) => fact[1] === telling).map(row));
  return [first.length ? table(["", ...one.nodes], first) : "",
    rest.length ? h("details", {}, h("summary", {}, `${rest.length} more facts`), table(["", ...one.nodes], rest)) : ""];
}
function drawNodes(place) {
  if (!FACTS.placements.length) return;
  place.append(h("h2", {}, "What the nodes are"), h("p", { class: "faint" }, "Marked: what differs between the nodes of a placement. - is not there, ? is not known."));
  for (const one of FACTS.placements) {
    const differing = one.rows.filter(([, , differs]) => differs).length;
    place.append(h("details", { open: FACTS.placements.length === 1 },
      h("summary", {}, h("b", {}, one.name), `: ${one.nodes.join(", ")}; ${differing} differ`, one.wire ? `; wire: ${one.wire.gbs ? `${one.wire.gbs.toPrecision(3)} GB/s, ` : ""}${one.wire.told}` : ""),
      ...nodesTable(one)));
  }
}
