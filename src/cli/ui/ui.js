// List of runs and sweeps, and overlaid curves. All text of runs is set as text, never as markup.
(() => {
  "use strict";
  const ROWS_MAX = 300;
  const CHOSEN_MAX = 14;
  const byId = (id) => document.getElementById(id);
  const make = (name, parent, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const SETTINGS_MAX = 8;
  const view = { sort: "started", down: true, chosen: [], series: "", last: "", smooth: 1, x: "", y: "", colour: "" };
  const curves = new Map();
  let listing = { runs: [], sweeps: [], pending: 0, defaults: {} };

  const load = async (path) => {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  };
  const time = (text) => (text ? text.replace("T", " ").slice(0, 16) : "–");
  const known = (value, format) => (value === null || value === undefined || value === "" ? "–" : format(value));

  const columns = [
    { key: "run", title: "run", value: (run) => run.name },
    { key: "state", title: "state", value: (run) => run.state },
    { key: "steps", title: "steps", right: true, value: (run) => run.steps },
    { key: "left", title: "left", right: true, value: (run) => run.left },
    { key: "loss", title: "loss", right: true, value: (run) => run.loss },
    { key: "best", title: "best", right: true, value: (run) => run.best },
    { key: "training", title: "training", value: (run) => run.training },
    { key: "memory", title: "RSS", right: true, value: (run) => run.memory },
    { key: "verdict", title: "memory", value: (run) => run.verdict },
    { key: "seconds", title: "time", right: true, value: (run) => run.seconds },
    { key: "started", title: "started", value: (run) => run.started },
  ];

  // Value of a setting of a run: its default where the run has its section and does not set it.
  const setting = (run, key) => run.settings[key] ?? (run.sections.includes(key.slice(0, key.lastIndexOf("."))) ? listing.defaults[key] : undefined);

  // Settings that are not all their defaults and differ: those with most values first. Short names where they are unique.
  const settings = () => {
    const values = new Map();
    for (const key of new Set(listing.runs.flatMap((run) => Object.keys(run.settings)))) {
      const found = new Map();
      for (const value of listing.runs.map((run) => setting(run, key)).filter((value) => value !== undefined)) {
        found.set(value, (found.get(value) || 0) + 1);
      }
      values.set(key, found);
    }
    const count = (found) => [...found.values()].reduce((sum, one) => sum + one, 0);
    const differs = [...values].filter(([, found]) => found.size > 1 || count(found) < listing.runs.length);
    differs.sort((a, b) => b[1].size - a[1].size || (a[0] > b[0] ? 1 : -1));
    const last = (key) => key.split(".").pop();
    return differs.slice(0, SETTINGS_MAX).map(([key, found]) => ({
      key: `set ${key}`,
      title: ["batch_size", "every_steps"].includes(last(key)) || differs.filter(([other]) => last(other) === last(key)).length > 1 ? key : last(key),
      name: key,
      right: [...found.keys()].every((value) => typeof value === "number"),
      value: (run) => setting(run, key),
    }));
  };
  const allColumns = () => [...columns, ...settings()];

  const compare = (a, b) => {
    const column = allColumns().find((one) => one.key === view.sort) || columns[0];
    const [x, y] = [column.value(a), column.value(b)];
    const missing = (value) => value === null || value === undefined || value === "";
    if (missing(x) || missing(y)) return missing(x) - missing(y);
    // Values of different metrics are not comparable.
    if (view.sort === "best" && a.metric !== b.metric) return a.metric > b.metric ? 1 : -1;
    const order = typeof x === "number" ? x - y : x > y ? 1 : x === y ? 0 : -1;
    return view.down ? -order : order;
  };

  const shown = () => {
    const typed = byId("filter").value.toLowerCase().replace(/\s*(<=|>=|=|<|>)\s*/g, "$1");
    const words = typed.split(/\s+/).filter((word) => word !== "");
    const known = allColumns();
    // `learning_rate>0.01`, `lr=0.003`, `state=failed`: a column, or a setting by the end of its key.
    const meets = (run, word) => {
      const [, name, sign, wanted] = word.match(/^([\w.-]+)(<=|>=|=|<|>)(.+)$/) || [];
      if (!sign) return null;
      const key = name === "lr" ? "learning_rate" : name;
      const set = [...Object.keys(run.settings), ...Object.keys(listing.defaults)];
      const wholeKey = set.find((one) => (one === key || one.endsWith(`.${key}`)) && setting(run, one) !== undefined);
      const column = known.find((one) => one.key === key || one.title === key);
      const value = wholeKey ? setting(run, wholeKey) : column && column.value(run);
      if (value === undefined || value === null || value === "") return false;
      const [left, right] = Number.isNaN(Number(wanted)) ? [String(value).toLowerCase(), wanted] : [Number(value), Number(wanted)];
      return { "<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right, "=": left === right }[sign];
    };
    const state = byId("state").value;
    const trials = byId("trials").checked;
    return listing.runs
      .filter((run) => trials || !run.sweep)
      .filter((run) => state === "" || (state === "live" ? run.live : run.state === state))
      .filter((run) => {
        const named = [`verdict ${run.verdict}`, `training ${run.training}`, `state ${run.state}`, ...Object.keys(run.settings)];
        const text = [run.name, run.metric, run.message, ...run.tags, ...named].join(" ").toLowerCase();
        return words.every((word) => meets(run, word) ?? text.includes(word));
      })
      .sort(compare);
  };

  const cell = (row, title, text, right) => {
    const made = make("td", row);
    // A narrow page breaks a path behind a slash.
    String(text ?? "").split(/(?<=\/)/).forEach((part, at) => made.append(...(at > 0 ? [make("wbr")] : []), part));
    made.dataset.title = title;
    if (right) made.className = "r";
    // A list of titles and values has no line for an unknown one.
    if (text === "–") made.classList.add("unknown");
    return made;
  };

  const drawRow = (body, run, own) => {
    const row = make("tr", body);
    const pick = cell(row, "curves");
    const label = make("label", pick);
    const box = make("input", label);
    box.type = "checkbox";
    box.checked = view.chosen.includes(run.id);
    box.disabled = !box.checked && view.chosen.length >= CHOSEN_MAX;
    box.setAttribute("aria-label", `curves of ${run.name}`);
    box.addEventListener("change", () => choose(run.id, box.checked));
    if (box.checked) make("i", label).className = `swatch line c${view.chosen.indexOf(run.id) + 1}`;
    const nameCell = cell(row, "run");
    nameCell.className = "text";
    const name = make("div", nameCell);
    const link = make("a", name, run.name);
    link.href = `report/${run.id}.html`;
    if (run.tags.length > 0) make("small", name, ` ${run.tags.join(", ")}`);
    if (run.message && run.tone !== "good") make("div", name, run.message).className = "note";
    make("span", cell(row, "state"), run.state).className = run.tone;
    const planned = run.planned && run.planned !== run.steps ? ` / ${run.planned}` : "";
    cell(row, "steps", known(run.steps, (steps) => `${steps}${planned}`), true);
    cell(row, "left", run.left, true);
    cell(row, "loss", known(run.loss, formats.number), true);
    const best = cell(row, "best", known(run.best, formats.number), true);
    if (run.metric) make("small", best, ` ${run.metric}`);
    make("span", cell(row, "training"), run.training || "–").className = run.training_tone;
    cell(row, "RSS", known(run.memory, formats.bytes), true);
    make("span", cell(row, "memory"), run.verdict || "–").className = run.verdict_tone;
    cell(row, "time", known(run.seconds, formats.seconds), true);
    cell(row, "started", time(run.started));
    for (const column of own) cell(row, column.title, known(column.value(run), settingText), column.right);
  };
  const settingText = (value) => (typeof value === "number" ? formats.number(value) : String(value));

  // What to do where the table is empty.
  const hint = (runs) => {
    if (runs.length > 0 || listing.pending > 0) return "";
    if (listing.runs.length === 0) return `No runs in ${listing.results} yet. Start one: xrun FILE (xrun new lists starting points).`;
    return "No run matches: change the filter, the state, or show the trials of sweeps.";
  };

  // Any column of numbers over any other, a dot for each run; a third one colours from blue (low) to red (high).
  const drawScatter = (runs) => {
    const place = byId("scatter");
    const numeric = allColumns().filter((column) => runs.some((run) => typeof column.value(run) === "number"));
    place.replaceChildren();
    if (runs.length < 2 || numeric.length < 2) return;
    const tools = make("div", place);
    tools.className = "bar-of-tools";
    make("span", tools, "scatter");
    for (const [axis, none] of [["x", "x: none"], ["y", "y: none"], ["colour", "colour: none"]]) {
      const select = make("select", tools);
      select.setAttribute("aria-label", axis);
      for (const [value, title] of [["", none], ...numeric.map((column) => [column.key, column.title])]) {
        const option = make("option", select, title);
        option.value = value;
        option.selected = value === view[axis];
      }
      select.addEventListener("change", () => {
        view[axis] = select.value;
        drawScatter(shown());
      });
    }
    const [x, y, colour] = ["x", "y", "colour"].map((axis) => numeric.find((column) => column.key === view[axis]));
    if (!x || !y) return;
    const number = (column) => (run) => typeof column.value(run) === "number" && Number.isFinite(column.value(run));
    const placed = runs.filter((run) => number(x)(run) && number(y)(run));
    const scale = (column) => {
      const values = placed.filter(number(column)).map(column.value);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const log = low > 0 && high >= 20 * low;
      const of = (value) => (log ? Math.log(value / low) / Math.log(high / low) : high > low ? (value - low) / (high - low) : 0.5);
      return { low, high, log, of };
    };
    const unit = (column) => ({ memory: formats.bytes, seconds: formats.seconds })[column.key] || settingText;
    const [xs, ys, cs] = [scale(x), scale(y), colour && scale(colour)];
    const name = ({ title }, { log }) => (log ? `${title} (logarithmic)` : title);
    const figure = make("figure", place);
    figure.className = "plot";
    make("h3", figure, `${name(y, ys)} by ${name(x, xs)}, ${placed.length} runs`);
    const chart = make("div", figure);
    chart.className = "chart scatter";
    for (const run of placed) {
      const dot = make("a", chart);
      dot.href = `report/${run.id}.html`;
      dot.title = [run.name, ...[x, y, colour].filter(Boolean).map((one) => `${one.title} ${known(one.value(run), unit(one))}`)].join(", ");
      dot.setAttribute("aria-label", dot.title);
      dot.style.left = `${3 + 94 * xs.of(x.value(run))}%`;
      dot.style.bottom = `${3 + 94 * ys.of(y.value(run))}%`;
      if (cs && number(colour)(run)) dot.style.background = `hsl(${240 - 240 * cs.of(colour.value(run))} 70% 50%)`;
    }
    const ends = (column, { low, high }) => `${column.title}: ${unit(column)(low)} to ${unit(column)(high)}`;
    make("p", figure, [ends(x, xs), ends(y, ys), ...(cs ? [`${ends(colour, cs)}, blue to red`] : [])].join(" · ")).className = "note";
  };

  const sortBy = (key) => {
    view.down = key === view.sort ? !view.down : !["run", "state", "training", "verdict"].includes(key);
    view.sort = key;
    drawList();
  };

  const drawList = () => {
    const runs = shown();
    const own = settings();
    const sortable = [...columns, ...own];
    byId("sort-by").replaceChildren();
    for (const column of sortable) make("option", byId("sort-by"), `by ${column.title}`).value = column.key;
    byId("sort-by").value = view.sort;
    const table = make("table");
    table.className = "stacked";
    const head = make("tr", make("thead", table));
    make("th", head);
    for (const column of sortable) {
      const title = make("th", head);
      if (column.name) title.title = column.name;
      if (column.right) title.className = "r";
      if (column.key === view.sort) title.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      make("button", title, column.title).addEventListener("click", () => sortBy(column.key));
    }
    const body = make("tbody", table);
    for (const run of runs.slice(0, ROWS_MAX)) drawRow(body, run, own);
    const empty = hint(runs);
    byId("runs").replaceChildren(empty ? Object.assign(document.createElement("p"), { textContent: empty }) : table);
    drawScatter(runs);
    const live = listing.runs.filter((run) => run.live).length;
    const counts = [`${runs.length} of ${listing.runs.length} runs`, `${live} running`];
    if (runs.length > ROWS_MAX) counts.push(`the first ${ROWS_MAX} are shown; a filter shows others`);
    if (listing.pending > 0) counts.push(`reading ${listing.pending} more`);
    if (listing.older[0] > 0) counts.push(`${listing.older[0]} older runs are not listed: xrun ls -n 0 has them`);
    if (listing.older[1] > 0) counts.push(`${listing.older[1]} older sweeps are not listed`);
    byId("status").textContent = counts.join(" · ");
    byId("compare").disabled = view.chosen.length < 2;
    byId("clear").disabled = view.chosen.length === 0;
  };

  const drawSweeps = () => {
    const place = byId("sweeps");
    place.replaceChildren();
    if (listing.sweeps.length === 0) return;
    make("h2", place, "Sweeps");
    const wide = make("div", place);
    wide.className = "wide";
    const table = make("table", wide);
    table.className = "stacked";
    const head = make("tr", make("thead", table));
    for (const title of ["sweep", "finished", "trials", "swept", "started", ""]) make("th", head, title);
    const body = make("tbody", table);
    for (const sweep of listing.sweeps) {
      const row = make("tr", body);
      const name = cell(row, "sweep");
      name.className = "text";
      make("a", name, sweep.name).href = `sweep/${sweep.id}.html`;
      cell(row, "finished", `${sweep.finished} / ${sweep.runs}`);
      cell(row, "trials", String(sweep.trials));
      cell(row, "swept", sweep.keys.join(", ")).className = "text";
      cell(row, "started", time(sweep.started));
      make("button", cell(row, ""), "show its runs").addEventListener("click", () => {
        byId("trials").checked = true;
        byId("filter").value = sweep.name;
        drawList();
        window.scrollTo(0, 0);
      });
    }
  };

  // Ticks as on the pages of reports: at least four round values.
  const roundStep = (unit, most) => {
    if (unit === "bytes") return 2 ** Math.floor(Math.log2(Math.max(most, 1)));
    const power = 10 ** Math.floor(Math.log10(most));
    return ([5, 2.5, 2].find((digit) => digit * power <= most * (1 + 1e-9)) || 1) * power;
  };
  const ticks = (unit, low, high, count) => {
    let step = roundStep(unit, (high - low) / (count - 1));
    for (let tries = 0; tries < 3; tries += 1) {
      if (Math.floor(high / step) - Math.ceil(low / step) + 1 >= count) break;
      step = roundStep(unit, step * (1 - 1e-6));
    }
    const all = [];
    for (let at = Math.ceil(low / step); at * step <= high && all.length < 16; at += 1) all.push(at * step);
    return all;
  };

  // Mean of the points within half the window on both sides, which moves no edge.
  const smoothed = (values) =>
    view.smooth === 1
      ? values
      : values.map((_, at) => {
          const half = Math.min(Math.floor(view.smooth / 2), at, values.length - 1 - at);
          const near = values.slice(at - half, at + half + 1);
          return near.reduce((sum, value) => sum + value, 0) / near.length;
        });

  const drawFigure = () => {
    const place = byId("figure");
    place.replaceChildren();
    const chosen = view.chosen.map((id, at) => ({ at, run: listing.runs.find((run) => run.id === id), data: curves.get(id) }));
    const loaded = chosen.filter((one) => one.run && one.data);
    if (loaded.length === 0) return;
    const names = [...new Set(loaded.flatMap((one) => one.data.curves.map((curve) => curve.name)))];
    if (!names.includes(view.series)) view.series = names[0] || "";
    const tools = make("div", place);
    tools.className = "bar-of-tools";
    const select = make("select", tools);
    select.setAttribute("aria-label", "curve");
    for (const name of names) {
      const option = make("option", select, name);
      option.value = name;
      option.selected = name === view.series;
    }
    select.addEventListener("change", () => {
      view.series = select.value;
      drawFigure();
    });
    const smooth = make("select", tools);
    smooth.setAttribute("aria-label", "smoothing");
    for (const points of [1, 5, 20, 100]) {
      const option = make("option", smooth, points === 1 ? "not smoothed" : `mean of ${points} points`);
      option.value = points;
      option.selected = points === view.smooth;
    }
    smooth.addEventListener("change", () => {
      view.smooth = Number(smooth.value);
      drawFigure();
    });
    const drawn = loaded
      .map((one) => ({ ...one, curve: one.data.curves.find((curve) => curve.name === view.series) }))
      .filter((one) => one.curve)
      .map((one) => ({ ...one, curve: { ...one.curve, y: smoothed(one.curve.y) } }));
    if (drawn.length === 0) return;
    const { unit, x_label: label } = drawn[0].curve;
    const all = (axis) => drawn.flatMap((one) => one.curve[axis]);
    const range = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    let [x0, x1] = range(all("x"));
    let [y0, y1] = range(all("y"));
    if (x1 === x0) x1 = x0 + 1;
    // Growth of memory would look like a bound on a logarithmic axis.
    const log = unit !== "bytes" && y0 > 0 && y1 > 20 * y0;
    if (log) [y0, y1] = [y0 / 1.15, y1 * 1.15];
    else {
      if (y0 >= 0 && (unit === "bytes" || y0 < 0.5 * y1)) y0 = 0;
      if (y1 === y0) y1 = y0 + 1;
      y1 += 0.06 * (y1 - y0);
    }
    const xOf = (x) => (x - x0) / (x1 - x0);
    const yOf = (y) => (log ? Math.log(y / y0) / Math.log(y1 / y0) : (y - y0) / (y1 - y0));
    const figure = make("figure", place);
    figure.className = "plot";
    make("h3", figure, view.series);
    if (log) make("p", figure, "The axis is logarithmic.").className = "note";
    const chart = make("div", figure);
    chart.className = "chart";
    const axisY = make("div", chart);
    axisY.className = "y";
    const decades = () => {
      const powers = [];
      for (let power = Math.floor(Math.log10(y0)); 10 ** power <= y1; power += 1) powers.push(10 ** power);
      const inside = (digits) => powers.flatMap((power) => digits.map((digit) => digit * power)).filter((y) => y >= y0 && y <= y1);
      return [[1], [1, 3], [1, 2, 5]].map(inside).find((found) => found.length >= 4) || ticks(unit, y0, y1, 4);
    };
    const marks = log ? decades() : ticks(unit, y0, y1, 4);
    for (const y of marks) make("span", axisY, formats[unit](y)).style.bottom = `${100 * yOf(y)}%`;
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const [width, height] = [40000, 20000];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${view.series} by ${label} of ${drawn.map((one) => one.run.name).join(", ")}`);
    Object.assign(svg.dataset, { x: `${x0} ${x1}`, y: `${y0} ${y1}`, log: log ? "y" : "", label });
    svg.dataset.units = `${label === "step" ? "number" : "seconds"} ${unit}`;
    chart.append(svg);
    const grid = document.createElementNS(space, "path");
    grid.setAttribute("class", "grid");
    grid.setAttribute("d", marks.map((y) => `M0,${Math.round(height * (1 - yOf(y)))}H${width}`).join(""));
    svg.append(grid);
    for (const { at, run, curve } of drawn) {
      const line = document.createElementNS(space, "polyline");
      line.setAttribute("class", `line c${at + 1}`);
      line.dataset.name = run.name;
      const point = (x, index) => `${Math.round(width * xOf(x))},${Math.round(height * (1 - yOf(curve.y[index])))}`;
      line.setAttribute("points", curve.x.map(point).join(" "));
      svg.append(line);
    }
    const axisX = make("div", chart);
    axisX.className = "x";
    const format = label === "step" ? formats.number : formats.seconds;
    for (const x of ticks("number", x0, x1, 5)) make("span", axisX, format(x)).style.left = `${100 * xOf(x)}%`;
    make("em", axisX, label);
    followPointer(svg);
    const legend = make("p", figure);
    for (const { at, run } of drawn) {
      const key = make("span", legend);
      key.className = "key";
      make("i", key).className = `swatch line c${at + 1}`;
      make("span", key, run.name);
    }
  };

  const choose = async (id, chosen) => {
    view.chosen = view.chosen.filter((one) => one !== id);
    if (chosen && view.chosen.length < CHOSEN_MAX) view.chosen.push(id);
    drawList();
    await loadCurves(false);
  };

  const loadCurves = async (again) => {
    const due = view.chosen.filter((id) => !curves.has(id) || (again && listing.runs.some((run) => run.id === id && run.live)));
    for (const id of due) {
      const data = await load(`curves/${id}.json`).catch(() => null);
      curves.set(id, data || { curves: [] });
    }
    for (const id of [...curves.keys()]) if (!view.chosen.includes(id)) curves.delete(id);
    drawFigure();
  };

  const update = async () => {
    try {
      const found = await load("runs.json");
      const text = JSON.stringify(found);
      if (text !== view.last) {
        view.last = text;
        listing = found;
        const states = [...new Set(listing.runs.filter((run) => !run.live).map((run) => run.state))].sort();
        const select = byId("state");
        const before = select.value;
        select.replaceChildren();
        for (const [value, title] of [["", "all states"], ["live", "running now"], ...states.map((state) => [state, state])]) {
          const option = make("option", select, title);
          option.value = value;
          option.selected = value === before;
        }
        drawList();
        drawSweeps();
        // Hovering and choosing a curve must not be disturbed without need.
        if (listing.runs.some((run) => run.live && view.chosen.includes(run.id))) await loadCurves(true);
      }
      byId("lost").hidden = true;
    } catch (error) {
      byId("lost").hidden = false;
    }
    setTimeout(update, listing.pending > 0 ? 300 : 2000);
  };

  byId("sort-by").addEventListener("change", () => sortBy(byId("sort-by").value));
  for (const id of ["filter", "state", "trials"]) byId(id).addEventListener("input", drawList);
  byId("clear").addEventListener("click", () => {
    view.chosen = [];
    drawList();
    loadCurves(false);
  });
  byId("compare").addEventListener("click", () => {
    window.location.href = `compare/${view.chosen.join("+")}.html`;
  });
  update();
})();
