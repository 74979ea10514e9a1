// Puts it together, and follows the address.
const PLACES = Object.fromEntries(["matrix", "cell", "groups", "tests", "conditions", "changes", "bandwidth", "scaling", "nodes", "filters", "totals"].map((id) => [id, document.getElementById(id)]));
function drawFilters() {
  const fields = FILTERS.map(([name, of], place) => {
    const values = [...new Set(CELLS.map(of).filter(Boolean))];
    if (values.length < 2 && name !== "signature") return null;
    if (!values.length) return null;
    const parameter = PARAMETER.get(place);
    const options = [h("option", { value: "" }, "all"), ...values.map((value) => h("option", { value }, name === "verdict" ? VERDICTS[value][1] : value.replace(/_/g, name === "outcome" ? " " : "_")))];
    return h("label", {}, name, h("select", { name: parameter, onchange: (event) => ask({ [parameter]: event.target.value }) }, options));
  });
  PLACES.filters.append(...fields.filter(Boolean),
    h("label", {}, "text", h("input", { name: "text", type: "search", placeholder: "cell, reason, signature", oninput: (event) => ask({ text: event.target.value }, true) })),
    h("button", { type: "button", onclick: () => { location.hash = ""; } }, "all cells"));
  PLACES.filters.addEventListener("submit", (event) => event.preventDefault());
}
let open = null;
function follow() {
  const now = asked();
  const matches = matcher();
  for (const field of PLACES.filters.elements) {
    if (field.name && field !== document.activeElement) field.value = now.get(field.name) || "";
    else if (field.name && field.value !== (now.get(field.name) || "") && field.tagName === "SELECT") field.value = now.get(field.name) || "";
  }
  filterMatrix(PLACES.matrix, matches);
  drawTotals(PLACES.totals, matches);
  drawGroups(PLACES.groups, matches);
  drawConditions(PLACES.conditions);
  const id = now.get("cell") || "";
  if (id !== open) drawCell(PLACES.cell, id);
  open = id;
}
drawFilters();
drawMatrix(PLACES.matrix);
drawTests(PLACES.tests);
drawChanges(PLACES.changes);
drawBandwidth(PLACES.bandwidth);
drawScaling(PLACES.scaling);
drawNodes(PLACES.nodes);
follow();
addEventListener("hashchange", follow);
PLACES.matrix.addEventListener("keydown", moveInMatrix);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  PLACES.matrix.querySelector("a").focus();
});
addEventListener("keydown", (event) => {
  const typing = event.target.matches && event.target.matches("input, select, textarea");
  if (event.key === "Escape" && open) {
    const back = PLACES.matrix.querySelector(`a[data-cell="${CSS.escape(open)}"]`);
    ask({ cell: "" });
    if (back) back.focus();
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    PLACES.filters.elements.text.focus();
  }
});
