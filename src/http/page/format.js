// Numbers as people read them. "not_available" is what the server says for what it can't tell.

const dash = "–";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Three figures that count: 0.088, 1.25, 34.5, 1,234.
function decimal(value) {
  if (!isNumber(value)) return dash;
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : value > 0 ? 3 : 0;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const whole = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : dash);
const percent = (part, all) => (all > 0 ? `${((100 * part) / all).toFixed(part < all && part > 0 ? 1 : 0)} %` : dash);

function byteSize(value) {
  if (!isNumber(value)) return dash;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : decimal(value)} ${units[unit]}`;
}

// ---- The document --------------------------------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);

// Writes only what changed, so that selections and assistive technology are left alone.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// make("td", {class: "n"}, "text" or nodes...)
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
