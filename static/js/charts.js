// Charts with uPlot, from the JSON beside them. Without this script the table says the same.
(() => {
  "use strict";
  const $ = (s, r = document) => r.querySelector(s), $$ = (s, r = document) => [...r.querySelectorAll(s)];
  const MINUTE = 60000;
  // Steps of the axes, so that a time has round figures.
  const STEPS = {
    count: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6],
    span: [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800],
  };
  let plots = [], shown = false;

  // Colours come from the tokens, through a probe element.
  function token(name) {
    const i = document.createElement("i");
    i.className = "probe"; i.style.color = `var(--${name})`; document.body.append(i);
    const c = getComputedStyle(i).color; i.remove();
    return c;
  }
  // Seconds on an axis or in a legend: 0, 250 ms, 12 s, 4.5 m, 2 h.
  function span(s) {
    if (s === null || s === undefined) return "–";
    if (s === 0) return "0";
    const round = v => String(v >= 10 ? Math.round(v) : Math.round(v * 10) / 10);
    const [unit, size] = s < 1 ? ["ms", .001] : s < 120 ? ["s", 1] : s < 7200 ? ["m", 60] : s < 172800 ? ["h", 3600] : ["d", 86400];
    return `${round(s / size)}\u00a0${unit}`;
  }
  const count = n => n === null || n === undefined ? "–" : n.toLocaleString("en");
  const hour = t => new Date(t * 1000).toISOString().slice(11, 16);
  const day = t => new Date(t * 1000).toLocaleDateString("en", { day: "numeric", month: "short", timeZone: "UTC" });

  function draw() {
    plots.forEach(p => p.destroy()); plots = [];
    const source = $("#charts-data");
    if (!window.uPlot || !source) return;
    const data = JSON.parse(source.textContent), ink = token("text-3"), line = token("line"), font = "12px Inter, system-ui, sans-serif";
    const long = data.x.length > 48;
    $$("[data-chart]").forEach(el => {
      const keys = $$("[data-series]", el.closest(".chart")), say = el.dataset.chart === "span" ? span : count;
      const usual = keys.map(k => $("b", k).textContent);
      const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
      const series = keys.map(k => ({
        label: k.dataset.series, stroke: token(`${k.dataset.tone}-bar`), width: 1.75, spanGaps: true, points: { show: false },
        dash: k.dataset.dash ? k.dataset.dash.split(" ").map(Number) : undefined,
        fill: k.hasAttribute("data-fill") ? token(`${k.dataset.tone}-soft`) : undefined }));
      el.hidden = false;
      plots.push(new window.uPlot({
        width: el.clientWidth, height: el.clientHeight, series: [{}, ...series], padding: [8, 20, 0, 0],
        cursor: { sync: { key: "hours" }, points: { size: 6 }, drag: { x: false, y: false } }, legend: { show: false },
        scales: { x: { time: true }, y: { range: (u, a, b) => [0, (b || 1) * 1.15] } },
        axes: [
          { ...axis, grid: { show: false }, size: 30, gap: 8, space: 90, values: (u, t) => t.map(long ? day : hour) },
          { ...axis, size: 52, space: 38, incrs: STEPS[el.dataset.chart], values: (u, v) => v.map(say) }],
        tzDate: t => window.uPlot.tzDate(new Date(t * 1000), "UTC"),
        hooks: { setCursor: [u => keys.forEach((k, i) => {
          const at = u.cursor.idx, text = at === null || at === undefined || u.cursor.left < 0 ? usual[i] : say(u.data[i + 1][at]);
          if ($("b", k).textContent !== text) $("b", k).textContent = text;
        })] },
      }, [data.x, ...keys.map(k => data[k.dataset.series])], el));
    });
    const table = $("#charts details");
    if (table && !table.dataset.seen) { table.open = false; table.dataset.seen = "1"; }
    shown = true;
  }

  let wait;
  addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(draw, 120); });
  document.documentElement.addEventListener("theme", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.addEventListener("htmx:after:swap", e => { if (e.target.id === "charts" || e.target.closest?.("#charts")) draw(); });
  // Once a minute, while somebody looks, nobody has paused the page, and the table is not being read.
  setInterval(() => {
    if (shown && document.visibilityState === "visible" && sessionStorage.getItem("paused") !== "1" && !$("#charts details[open]")) {
      document.body.dispatchEvent(new CustomEvent("minute"));
    }
  }, MINUTE);
  (document.fonts?.ready ?? Promise.resolve()).then(draw);
})();
