// Charts, and bandwidth over message size. plotly is unpacked when the first chart is to be seen.
let plotly = null;
async function unpack(id) {
  const packed = document.getElementById(id).textContent.trim();
  if (!packed || typeof DecompressionStream === "undefined") return "";
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}
async function charts() {
  if (!plotly) {
    plotly = (async () => {
      const text = await unpack("charts");
      if (!text) return null;
      const script = document.createElement("script");
      script.textContent = text;
      document.head.append(script);
      return window.Plotly || null;
    })();
  }
  return plotly;
}
// The series of the metric that tells most of a cell; `metric` is that of the chart.
function curves(cell, metric = cell.curve) {
  return (cell.series || []).filter((one) => metric && one.metric === metric && one.points.some(([, value]) => value > 0));
}
function named(cell, series, several) {
  const place = series.place ? " in place" : "";
  return `${(cell.axes || {}).transport || cell.id}${several ? ` ${series.dtype}${place}` : ""}`;
}
function lines(cells, focus, metric) {
  const several = cells.some((cell) => curves(cell, metric).length > 1);
  const found = cells.flatMap((cell) => curves(cell, metric).map((series) => {
    const points = series.points.filter(([, value]) => value > 0);
    const main = !focus || cell === focus;
    return {
      name: named(cell, series, several), x: points.map(([bytes]) => bytes), y: points.map(([, value]) => value),
      error_y: main ? { type: "data", symmetric: false, thickness: 1, width: 2,
        array: points.map(([, value, , high]) => high - value), arrayminus: points.map(([, value, low]) => value - low) } : undefined,
      mode: "lines+markers", line: { width: main ? 2.5 : 1 }, opacity: main ? 1 : 0.6, type: "scatter",
      hovertemplate: `%{y:.3g} ${series.unit} at %{text}`, text: points.map(([bytes]) => size(bytes)),
    };
  }));
  const sizes = found.flatMap((one) => one.x);
  const [first, last] = [Math.min(...sizes), Math.max(...sizes)];
  const wires = new Map(cells.filter((cell) => cell.wire && cell.wire.gbs).map((cell) => [cell.wire.gbs, cell]));
  for (const [gbs] of metric === "busbw" ? wires : []) {
    found.push({ name: `wire, ${gbs.toPrecision(3)} GB/s`, x: [first, last], y: [gbs, gbs], mode: "lines", line: { dash: "dash", width: 1.5 }, hoverinfo: "name" });
  }
  for (const one of (focus || { limits: [] }).limits || []) {
    if (one.metric !== metric) continue;
    found.push({ name: `reference: ${one.source}`, x: one.points.map(([bytes]) => bytes), y: one.points.map(([, value]) => value), mode: "lines+markers", line: { dash: "dot" }, hoverinfo: "name+y" });
  }
  return found;
}
// A colour of the page, by its name in the style.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
// Draws in the page's colours; nothing stays where charts cannot be drawn. `name` is for who does not see it.
async function plot(place, name, traces, layout) {
  const drawn = h("div", { class: "chart", role: "img", "aria-label": name, style: layout.height ? `height:${layout.height}px` : null });
  place.append(drawn);
  const library = await charts();
  if (!library) return void drawn.remove();
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line") };
  await library.newPlot(drawn, traces, {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: colour("ink") }, ...layout,
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  }, { displaylogo: false, responsive: true });
}
async function chart(place, cells, focus = null) {
  const metric = (focus || cells[0]).curve, [{ unit }] = curves(focus || cells[0]);
  const traces = lines(cells, focus, metric);
  if (!traces.length) return;
  const sizes = [...new Set(traces.flatMap((one) => one.x))].sort((a, b) => a - b);
  const ticks = sizes.filter((_, index) => index % Math.ceil(sizes.length / 12) === 0);
  await plot(place, `${metric} over message size; the table below has the numbers`, traces, {
    margin: { l: 60, r: 20, t: 10, b: 50 },
    xaxis: { type: "log", title: { text: "message size, bytes" }, tickvals: ticks, ticktext: ticks.map(size) },
    yaxis: { title: { text: `${metric}, ${unit}` }, rangemode: "tozero" }, hovermode: "x unified", legend: { orientation: "h", y: -0.2 },
  });
}
