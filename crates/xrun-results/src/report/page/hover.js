// Values under the pointer, for every figure with curves. Text is set as text, never as markup.
const formats = (() => {
  "use strict";
  const trimmed = (value, digits) => String(Number(value.toPrecision(digits)));
  const scaled = (value, sizes, names) => {
    let at = 0;
    while (at + 1 < names.length && value >= sizes[at + 1]) at += 1;
    return trimmed(value / sizes[at], 4) + " " + names[at];
  };
  return {
    number: (value) => {
      const size = Math.abs(value);
      if (size === 0 || (size >= 1e-3 && size < 1e6)) return trimmed(value, 4);
      return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
    },
    bytes: (value) => {
      const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
      return scaled(Math.max(value, 0), names.map((_, at) => 1024 ** at), names);
    },
    seconds: (value) => {
      if (value < 1) return trimmed(value * 1000, 3) + " ms";
      if (value < 60) return trimmed(value, 4) + " s";
      // As in the terminal: 3 min 35 s.
      const [, large, small] = [[3600, "min", "s"], [86400, "h", "min"], [Infinity, "d", "h"]].find(([end]) => value < end);
      const unit = { min: 60, h: 3600, d: 86400 }[large];
      const part = { s: 1, min: 60, h: 3600 }[small];
      const all = Math.round(value / part);
      return `${Math.floor((all * part) / unit)} ${large} ${Math.round(((all * part) % unit) / part)} ${small}`;
    },
  };
})();

const followPointer = (() => {
  "use strict";
  const numbers = (text) => text.trim().split(/[\s,]+/).map(Number);
  return (svg) => {
    const chart = svg.parentElement;
    const [, , width, height] = numbers(svg.getAttribute("viewBox"));
    const axis = (name) => {
      const [low, high] = numbers(svg.dataset[name]);
      const log = svg.dataset.log.includes(name);
      return (share) => (log ? low * (high / low) ** share : low + share * (high - low));
    };
    const [xOf, yOf] = [axis("x"), axis("y")];
    const [xUnit, yUnit] = svg.dataset.units.split(" ");
    // An area has its upper edge first, then the lower one backwards.
    const curves = [...svg.querySelectorAll("[data-name]")].map((shape) => {
      const all = numbers(shape.getAttribute("points"));
      const area = shape.tagName === "polygon";
      const count = area ? all.length / 4 : all.length / 2;
      const y = (at) => yOf(1 - all[2 * at + 1] / height);
      const held = (at) => (area ? y(at) - y(2 * count - 1 - at) : y(at));
      return { name: shape.dataset.name, colour: shape.classList[1], count, x: (at) => all[2 * at] / width, y: held };
    });
    const make = (name, parent) => {
      const made = document.createElement(name);
      parent.append(made);
      return made;
    };
    let guide, box;
    const nearest = (curve, share) => {
      let [low, high] = [0, curve.count - 1];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (curve.x(middle) > share) high = middle;
        else low = middle;
      }
      return Math.abs(curve.x(low) - share) > Math.abs(curve.x(high) - share) ? high : low;
    };
    const show = (event) => {
      const place = svg.getBoundingClientRect();
      const share = Math.min(Math.max((event.clientX - place.left) / place.width, 0), 1);
      const all = curves.filter((curve) => curve.count > 0).map((curve) => [curve, nearest(curve, share)]);
      if (all.length === 0) return;
      const closest = all.reduce((a, b) =>
        Math.abs(b[0].x(b[1]) - share) < Math.abs(a[0].x(a[1]) - share) ? b : a);
      const at = closest[0].x(closest[1]);
      // A curve has a value from its first point to its last, and as far beyond as its points are apart.
      const apart = (curve) => (curve.x(curve.count - 1) - curve.x(0)) / Math.max(curve.count - 1, 1) + 1e-3;
      const has = (curve) => at >= curve.x(0) - apart(curve) && at <= curve.x(curve.count - 1) + apart(curve);
      const shown = all.filter(([curve]) => has(curve));
      if (!guide) {
        guide = make("div", chart);
        guide.className = "guide";
        box = make("div", chart);
        box.className = "tip";
      }
      box.replaceChildren();
      const x = xOf(at);
      make("div", box).textContent = `${svg.dataset.label} ${svg.dataset.label === "step" ? Math.round(x) : formats[xUnit](x)}`;
      for (const [curve, index] of shown) {
        const line = make("div", box);
        make("i", line).className = `swatch ${curve.colour}`;
        make("span", line).textContent = curve.name;
        make("b", line).textContent = formats[yUnit](curve.y(index));
      }
      const outer = chart.getBoundingClientRect();
      const left = place.left - outer.left + at * place.width;
      guide.style.left = `${left}px`;
      guide.style.height = `${place.height}px`;
      box.style.left = at > 0.5 ? "" : `${left + 10}px`;
      box.style.right = at > 0.5 ? `${outer.width - left + 10}px` : "";
      guide.hidden = box.hidden = false;
    };
    const hide = () => {
      if (guide) guide.hidden = box.hidden = true;
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", hide);
  };
})();

document.querySelectorAll(".chart svg[data-x]").forEach(followPointer);
