// What maps of a slide hold: values as colors over it, measurements beside it.
import { html, api, number, useEffect, useState, Wrong } from "./lib.js";

// Cividis: read alike by eyes with and without color vision, and in gray.
const RAMP = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const rgb = (color) => [1, 3, 5].map((k) => parseInt(color.slice(k, k + 2), 16));

export function colorOf(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1), low = Math.min(RAMP.length - 2, Math.floor(at)), t = at - low;
  const [a, b] = [rgb(RAMP[low]), rgb(RAMP[low + 1])];
  return `rgb(${a.map((v, k) => Math.round(v + t * (b[k] - v))).join(" ")})`;
}

export function drawHeat(ctx, heat, frame) {
  let drawn = 0;
  ctx.globalAlpha = 0.62;
  for (let n = 0; n < heat.values.length; n += 1) {
    if (heat.values[n] == null) continue;
    const [x, y, right, bottom] = [heat.x[n] - frame.left, heat.y[n] - frame.top, heat.x[n] + heat.side - frame.left, heat.y[n] + heat.side - frame.top].map((v) => Math.round(v * frame.scale));
    if (right < 0 || bottom < 0 || x > ctx.canvas.width || y > ctx.canvas.height) continue;
    ctx.fillStyle = heat.colors[n];
    ctx.fillRect(x, y, right - x, bottom - y);
    drawn += 1;
  }
  ctx.globalAlpha = 1;
  return drawn;
}

export const value = (v, unit) => v == null ? "–" : `${number(v)}${unit ? ` ${unit}` : ""}`;

function Legend({ heat }) {
  const more = heat.most > heat.high * 1.001;
  return html`<figure class="legend" id="legend" data-squares=${heat.values.length}><figcaption class="small">${heat.words}, squares of ${number(heat.side_um)} µm</figcaption>
    <svg width="100%" height="14" aria-hidden="true"><defs><linearGradient id="ramp">${RAMP.map((color, n) => html`<stop offset=${n / (RAMP.length - 1)} stop-color=${color}/>`)}</linearGradient></defs><rect width="100%" height="14" fill="url(#ramp)"/></svg>
    <div class="row ends tiny"><span>${number(heat.low)}</span><span>${number((heat.low + heat.high) / 2)}</span><span>${number(heat.high)}${more ? " and more" : ""} ${heat.unit}</span></div>
    ${heat.values.some((v) => v == null) ? html`<p class="tiny soft">Without color: fewer than ten cells.</p>` : null}</figure>`;
}

export function Heat({ path, maps, types, heat, setHeat }) {
  const [wrong, setWrong] = useState("");
  const [shown, setShown] = useState("");
  const choose = (what) => {
    setShown(what); setWrong("");
    if (!what) { setHeat(null); return; }
    const [quantity, kind] = what.split(":");
    api(`/api/slides/heat?${new URLSearchParams({ path: maps.path, slide: path, quantity, kind })}`).then((found) => {
      const span = found.high - found.low || 1;
      setHeat({ ...found, colors: found.values.map((v) => v == null ? "" : colorOf((v - found.low) / span)) });
    }, (e) => { setHeat(null); setWrong(e.message); });
  };
  const plain = (type) => type.replaceAll("_", " ");
  return html`<section class="panel" aria-label="Map of values"><h3>Map of values</h3>
    <label class="small">Show <select id="heat" value=${shown} onChange=${(e) => choose(e.target.value)}><option value="">nothing</option><option value="density:">density of all cells</option>
      ${types.map((type) => html`<option value=${`density:${type}`}>density of ${plain(type)} cells</option>`)}${types.map((type) => html`<option value=${`share:${type}`}>share of ${plain(type)} cells</option>`)}</select></label>
    <${Wrong} error=${wrong}/>${heat ? html`<${Legend} heat=${heat}/>` : null}</section>`;
}

export function Measurements({ path, maps, region, setRegion, regions, goTo }) {
  const [data, setData] = useState(null);
  const [wrong, setWrong] = useState("");
  const [added, setAdded] = useState([]);
  const [typed, setTyped] = useState("");
  const chosen = region >= 0 ? regions[region] : null;
  const key = JSON.stringify([maps.path, chosen, added]);
  useEffect(() => {
    const stop = new AbortController();
    const wait = setTimeout(() => api("/api/slides/measure", { signal: stop.signal, body: { maps: maps.path, slide: path, formulas: added.length && data ? [...data.rows.map((row) => row.formula), ...added].filter((f, n, all) => all.indexOf(f) === n) : [], regions: chosen ? [chosen] : [] } })
      .then((found) => { setData(found); setWrong(""); }, (e) => { if (e.name !== "AbortError") { setWrong(e.message); setAdded((old) => old.slice(0, -1)); } }), 200);
    return () => { clearTimeout(wait); stop.abort(); };
  }, [key]);
  const add = (event) => { event.preventDefault(); if (typed.trim()) { setAdded([...added, typed.trim()]); setTyped(""); } };
  return html`<section class="panel" id="measurements" aria-label="Measurements"><h3>Measurements</h3>
    <div class="row"><label class="small">Where <select id="where" value=${String(region)} onChange=${(e) => setRegion(Number(e.target.value))}><option value="-1">all tissue</option>${regions.map((r, n) => html`<option value=${n}>${r.label || `region ${n + 1}`}</option>`)}</select></label><span class="soft small">maps: ${maps.name}</span></div>
    <${Wrong} error=${wrong}/>
    ${data?.outside_card.map((text) => html`<p class="said warn small">Not valid: ${text}</p>`)}
    ${data ? html`<div class="scroll" tabindex="0" role="region" aria-label="Values"><table class="small"><thead><tr><th>Measurement</th><th class="n">All tissue</th>${chosen ? html`<th class="n">Here</th>` : null}<th><span class="unseen">place</span></th></tr></thead><tbody>
      ${data.tissue_mm2[0] != null ? html`<tr><td>Tissue</td><td class="n">${value(data.tissue_mm2[0], "mm²")}</td>${chosen ? html`<td class="n">${value(data.tissue_mm2[1], "mm²")}</td>` : null}<td></td></tr>` : null}
      ${data.rows.map((row) => html`<tr key=${row.formula} data-formula=${row.formula}><td title=${row.formula}>${row.words}</td>${[row.whole, ...(chosen ? [row.here] : [])].map((v) => html`<td class="n">${v?.value == null ? html`<span class="soft" title=${v?.why_not}>– <span class="tiny">${v?.why_not}</span></span>` : value(v.value, row.unit)}</td>`)}
        <td><button type="button" class="plain" aria-label=${`show where: ${row.words}`} onClick=${() => goTo({ x: row.place.x, y: row.place.y, width: row.place.side })}>show</button></td></tr>`)}</tbody></table></div>
      <form class="row" onSubmit=${add}><input id="formula" list="offered" aria-label="a further measurement, as a formula" placeholder="mean(nearest(cells.lymphoid, …))" value=${typed} onInput=${(e) => setTyped(e.target.value)}/><button type="submit">Measure</button>
        <datalist id="offered">${data.offered.map((item) => html`<option value=${item.formula}>${item.words}</option>`)}</datalist></form>` : wrong ? null : html`<p class="soft small" role="status">Measuring …</p>`}
  </section>`;
}
