// The filters of a page, from the address and into it.
function drawFilters(form) {
  const fields = FILTERS.map(([name, of], place) => {
    const values = [...new Set(CELLS.map(of).filter(Boolean))];
    if (values.length < 2 && name !== "signature") return null;
    if (!values.length) return null;
    const parameter = PARAMETER.get(place);
    const options = [h("option", { value: "" }, "all"), ...values.map((value) => h("option", { value }, name === "verdict" ? VERDICTS[value][1] : value.replace(/_/g, name === "outcome" ? " " : "_")))];
    return h("label", {}, name, h("select", { name: parameter, onchange: (event) => ask({ [parameter]: event.target.value }) }, options));
  });
  form.append(...fields.filter(Boolean),
    h("label", {}, "text", h("input", { name: "text", type: "search", placeholder: "cell, reason, signature", oninput: (event) => ask({ text: event.target.value }, true) })),
    h("button", { type: "button", onclick: () => { location.hash = ""; } }, "all cells"));
  form.addEventListener("submit", (event) => event.preventDefault());
}
// Shows in the fields what the address asks for; whoever types is not disturbed.
function followFilters(form, now) {
  for (const field of form.elements) {
    if (field.name && field !== document.activeElement) field.value = now.get(field.name) || "";
    else if (field.name && field.value !== (now.get(field.name) || "") && field.tagName === "SELECT") field.value = now.get(field.name) || "";
  }
}
