// Draws every figure of the page in its place, in the colours of the page.
const figures = JSON.parse(document.getElementById("figures").textContent);
const style = getComputedStyle(document.documentElement);
const ink = style.getPropertyValue("--ink");
const line = style.getPropertyValue("--line");
const clear = "rgba(0,0,0,0)";

function inColours(figure) {
  const layout = {
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    font: { color: ink, family: "system-ui, sans-serif" },
    margin: { t: 60, r: 60 },
    legend: { orientation: "h", y: 1.1, x: 1, xanchor: "right" },
    ...figure.layout,
  };
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis/.test(name)) layout[name] = { gridcolor: line, automargin: true, ...layout[name] };
  }
  return layout;
}

for (const place of document.querySelectorAll(".plot")) {
  const figure = figures[place.dataset.figure][Number(place.dataset.at)];
  Plotly.newPlot(place, figure.data, inColours(figure), { displayModeBar: false, responsive: true });
}
