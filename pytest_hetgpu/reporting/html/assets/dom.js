// Everything on the page is made here: text goes in as text, never as markup.
function h(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
// A link to elsewhere, where the text is one; nothing but the web is linked to.
function link(text) {
  return /^https?:\/\/[^\s<>"]+$/.test(text) ? h("a", { href: text, rel: "noreferrer noopener" }, text) : text;
}
function size(bytes) {
  for (const [unit, factor] of [["G", 2 ** 30], ["M", 2 ** 20], ["K", 1024]]) {
    if (bytes >= factor && bytes % factor === 0) return `${bytes / factor}${unit}`;
  }
  return String(bytes);
}
function duration(seconds) {
  return seconds >= 100 ? `${seconds.toFixed(0)} s` : `${seconds.toFixed(1)} s`;
}
function table(head, rows, attributes = {}) {
  return h("div", { class: "scroll" }, h("table", attributes,
    h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows)));
}
