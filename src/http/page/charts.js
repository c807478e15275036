// Small charts in SVG: lines and bars over the last two minutes, and the block pool as a grid.

const historyLength = 120;  // points, one a second
const svg = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// The last historyLength values, oldest first; null where nothing happened that could be measured.
class Series {
  values = [];
  add(value) {
    this.values.push(isNumber(value) ? value : null);
    if (this.values.length > historyLength) this.values.shift();
  }
  get max() {
    return Math.max(0, ...this.values.filter((value) => value !== null));
  }
  get last() {
    return this.values.findLast((value) => value !== null) ?? null;
  }
}

// A line from the left (oldest) to the right edge (now), its area down to zero. Gaps stay gaps; a lone point is a dot.
function drawSpark(node, series, what, unit) {
  const width = historyLength - 1, height = 32, top = 3;
  const max = series.max || 1;
  const from = historyLength - series.values.length;
  let line = "", area = "", start = null;
  series.values.forEach((value, i) => {
    if (value === null) return;
    const x = from + i, y = top + (height - top) * (1 - value / max);
    const joins = i > 0 && series.values[i - 1] !== null;
    line += joins ? `L${x} ${y.toFixed(2)}` : `M${x} ${y.toFixed(2)}h.01`;
    if (!joins) start = x;
    const isEnd = i + 1 === series.values.length || series.values[i + 1] === null;
    area += (joins ? "L" : `M${x} ${height}L`) + `${x} ${y.toFixed(2)}` + (isEnd && start !== x ? `V${height}Z` : "");
  });
  node.setAttribute("viewBox", `0 0 ${width} ${height + 1}`);
  node.setAttribute("preserveAspectRatio", "none");
  node.setAttribute("aria-label", series.last === null
    ? `${what}: nothing in the last two minutes`
    : `${what} over the last two minutes: now ${decimal(series.last)} ${unit}, at most ${decimal(series.max)} ${unit}`);
  node.replaceChildren(
    svg("path", { class: "base", d: `M0 ${height + 0.5}H${width}` }),
    svg("path", { class: "area", d: area }),
    svg("path", { class: "line", d: line }),
  );
}

// A bar a second, `lower` below `upper`.
function drawBars(node, lower, upper, label) {
  const height = 60, count = lower.values.length;
  const sums = lower.values.map((value, i) => (value ?? 0) + (upper.values[i] ?? 0));
  const max = Math.max(1, ...sums);
  const bars = [svg("path", { class: "base", d: `M0 ${height + 0.5}H${historyLength}` })];
  for (let i = 0; i < count; ++i) {
    if (sums[i] === 0) continue;
    const x = historyLength - count + i;
    const low = (height * (lower.values[i] ?? 0)) / max, high = (height * (upper.values[i] ?? 0)) / max;
    if (low > 0) bars.push(svg("rect", { class: "saved", x: x + 0.1, y: height - low, width: 0.8, height: low }));
    if (high > 0) {
      bars.push(svg("rect", { class: "computed", x: x + 0.1, y: height - low - high, width: 0.8, height: high }));
    }
  }
  node.setAttribute("viewBox", `0 0 ${historyLength} ${height + 1}`);
  node.setAttribute("preserveAspectRatio", "none");
  node.setAttribute("aria-label", label);
  node.replaceChildren(...bars);
  return Math.max(0, ...sums);
}

// How many of `cells` each count gets: its share, but never none of what is there. The last one takes what is left.
function shareOut(counts, total, cells) {
  const shares = counts.map((count) => (count > 0 ? Math.max(1, Math.round((count / total) * cells)) : 0));
  let over = shares.reduce((sum, share) => sum + share, 0) - cells;
  for (; over > 0; --over) --shares[shares.indexOf(Math.max(...shares))];
  shares[shares.length - 1] -= over;
  return shares;
}

// The pool's blocks by state, in groups of equal size: shares, not places.
const poolColumns = 40, poolRows = 12;
function drawPool(node, states, total) {
  const cells = Math.min(total, poolColumns * poolRows);
  const rows = Math.ceil(cells / poolColumns);
  if (node.childElementCount !== cells) {
    node.setAttribute("viewBox", `0 0 ${poolColumns} ${rows}`);
    node.replaceChildren(...Array.from({ length: cells }, (_, i) => svg("rect", {
      x: (i % poolColumns) + 0.08, y: Math.floor(i / poolColumns) + 0.08, width: 0.84, height: 0.84, rx: 0.18,
    })));
  }
  const shares = shareOut(states.map((state) => state.count), total, cells);
  let i = 0;
  states.forEach((state, s) => {
    for (const end = i + shares[s]; i < end; ++i) {
      const cell = node.children[i];
      if (cell.getAttribute("class") !== state.name) cell.setAttribute("class", state.name);
    }
  });
  node.setAttribute("aria-label", `Blocks: ${states.map((state) => `${whole(state.count)} ${state.name}`).join(", ")}`);
  return total / cells;
}
