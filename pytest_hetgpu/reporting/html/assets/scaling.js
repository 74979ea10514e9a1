// Speed over the number of ranks, both axes logarithmic, beside the line of perfect scaling.
function scalingTraces(curves) {
  const found = curves.map((curve) => {
    const [[first]] = curve.steps;
    const speed = (ranks, efficiency) => ranks / first * efficiency;
    return {
      name: `${curve.name} (${curve.kind})`, mode: "lines+markers", type: "scatter",
      x: curve.steps.map(([ranks]) => ranks), y: curve.steps.map(([ranks, , , efficiency]) => speed(ranks, efficiency)),
      error_y: { type: "data", symmetric: false, thickness: 1, width: 2,
        array: curve.steps.map(([ranks, , , efficiency, , high]) => speed(ranks, high - efficiency)),
        arrayminus: curve.steps.map(([ranks, , , efficiency, low]) => speed(ranks, efficiency - low)) },
      text: curve.steps.map(([, , , efficiency]) => `${(efficiency * 100).toFixed(0)} %`), hovertemplate: "%{y:.3g} times as fast, efficiency %{text}",
    };
  });
  // Curves that begin at different numbers of ranks have different lines of perfect scaling.
  for (const first of new Set(curves.map((curve) => curve.steps[0][0]))) {
    const last = Math.max(...curves.filter((curve) => curve.steps[0][0] === first).map((curve) => curve.steps[curve.steps.length - 1][0]));
    found.push({ name: "perfect", x: [first, last], y: [1, last / first], mode: "lines", line: { dash: "dash", width: 1.5 }, hoverinfo: "name" });
  }
  return found;
}
function scalingRow(curve, [ranks, value, figure, efficiency, low, high, communication], place) {
  const percent = (share) => `${(share * 100).toFixed(0)} %`;
  return h("tr", {}, h("td", {}, place ? "" : curve.name), h("td", {}, curve.kind), h("td", {}, String(ranks)), h("td", {}, value),
    h("td", {}, `${figure.toPrecision(4)} (${curve.metric})`), h("td", {}, percent(efficiency)), h("td", {}, low === high ? "" : `${percent(low)} to ${percent(high)}`), h("td", {}, communication === null ? "" : percent(communication)));
}
function drawScaling(place) {
  const curves = FACTS.scaling || [];
  if (!curves.length) return;
  const drawn = h("div", {});
  place.append(h("h2", {}, "Scaling"), h("ul", {}, curves.map((curve) => h("li", {}, `${curve.name} (${curve.kind}): ${curve.knee}`))), drawn,
    table(["cells", "scaling", "ranks", "value", "measured", "efficiency", "95 % interval", "communication"], curves.flatMap((curve) => curve.steps.map((step, at) => scalingRow(curve, step, at)))));
  const numbers = [...new Set(curves.flatMap((curve) => curve.steps.map(([ranks]) => ranks)))].sort((a, b) => a - b);
  const show = () => plot(drawn, "Speed over the number of ranks; the table below has the numbers", scalingTraces(curves), {
    margin: { l: 60, r: 20, t: 10, b: 50 }, legend: { orientation: "h", y: -0.2 },
    xaxis: { type: "log", title: { text: "ranks" }, tickvals: numbers, ticktext: numbers.map(String) },
    yaxis: { type: "log", title: { text: "speedup over the fewest ranks" }, dtick: Math.log10(2) },
  });
  new IntersectionObserver((seen, watch) => { if (seen.some((one) => one.isIntersecting)) { watch.disconnect(); show(); } }).observe(place);
}
