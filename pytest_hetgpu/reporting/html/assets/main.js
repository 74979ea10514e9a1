// Puts it together, and follows the address.
const PLACES = Object.fromEntries(["matrix", "cell", "groups", "tests", "conditions", "changes", "bandwidth", "scaling", "nodes", "filters", "totals"].map((id) => [id, document.getElementById(id)]));
let open = null;
function follow() {
  const now = asked();
  const matches = matcher();
  followFilters(PLACES.filters, now);
  filterMatrix(PLACES.matrix, matches);
  drawTotals(PLACES.totals, matches);
  drawGroups(PLACES.groups, matches);
  drawConditions(PLACES.conditions);
  const id = now.get("cell") || "";
  if (id !== open) drawCell(PLACES.cell, id);
  open = id;
}
drawFilters(PLACES.filters);
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
