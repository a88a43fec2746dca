// Regions drawn on a slide by hand: with the pointer, or with the keyboard alone.
import { html, api, number, only, render, useEffect, useRef, useState, Wrong } from "./lib.js";

const LABELS = ["Tumor", "Stroma", "Necrosis", "Lymphoid aggregate", "Peritumoral", "Normal", "Artifact"];
export const INK = "#d81b60";
const STEP = 12; // of the screen, for an arrow key; 1 with Shift
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function boxOf(corners) {
  const xs = corners.map((c) => c[0]), ys = corners.map((c) => c[1]);
  return { x: Math.min(...xs), y: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) };
}

function areaOf(corners) {
  return Math.abs(corners.reduce((sum, [x, y], n) => { const [u, v] = corners[(n + 1) % corners.length]; return sum + x * v - u * y; }, 0)) / 2;
}

// Regions, who they belong to, and every step back.
export function useRegions(path, site) {
  const [state, set] = useState({ regions: [], base: "", file: "", dirty: false, wrong: "", past: [] });
  const [chosen, choose] = useState(-1);
  const [mode, setMode] = useState("");
  const load = () => api(`/api/slides/regions?${new URLSearchParams({ path })}`).then((found) => set({ ...found, dirty: false, wrong: "", past: [] }), (e) => set((old) => ({ ...old, wrong: e.message })));
  useEffect(() => { load(); }, [path]);
  const change = (regions, remember = true) => set((old) => ({ ...old, regions, dirty: true, past: remember ? [...old.past.slice(-49), old.regions] : old.past }));
  const undo = () => set((old) => old.past.length ? { ...old, regions: old.past.at(-1), past: old.past.slice(0, -1), dirty: true } : old);
  const save = (person) => api("/api/slides/regions", { body: { slide: path, person, base: state.base, regions: state.regions } })
    .then(({ base, file }) => set((old) => ({ ...old, base, file, dirty: false, wrong: "" })), (e) => set((old) => ({ ...old, wrong: e.message })));
  return { ...state, path, site, chosen, choose, mode, setMode, change, undo, save };
}

// What lies over the slide: outlines, and handles of the region that is edited.
export function drawRegions(layer, held, frame, slide) {
  const { regions, chosen, choose, mode, setMode, change } = held;
  const at = ([x, y]) => [(x - frame.left) * frame.zoom, (y - frame.top) * frame.zoom];
  const within = ([x, y]) => [Math.min(slide.width, Math.max(0, x)), Math.min(slide.height, Math.max(0, y))];
  const under = (event) => { const box = layer.getBoundingClientRect(); return within([frame.left + (event.clientX - box.left) / frame.zoom, frame.top + (event.clientY - box.top) / frame.zoom]); };
  const replace = (n, corners, remember) => change(regions.map((region, k) => k === n ? { ...region, corners: corners.map(within) } : region), remember);
  const moved = (corners, dx, dy) => {
    const box = boxOf(corners);
    const x = Math.min(slide.width - box.right, Math.max(-box.x, dx)), y = Math.min(slide.height - box.bottom, Math.max(-box.y, dy));
    return corners.map(([u, v]) => [u + x, v + y]);
  };
  const add = (corners) => { change([...regions, { label: "", corners }]); choose(regions.length); setMode(""); layer.draft = null; };
  const stop = (event) => event.stopPropagation();
  const again = () => drawRegions(layer, held, frame, slide);
  layer.close = () => { if (layer.draft?.length > 2) add(layer.draft); };
  const begin = (event) => {
    event.stopPropagation(); event.preventDefault();
    if (mode === "rectangle") { layer.from = under(event); event.currentTarget.setPointerCapture(event.pointerId); return; }
    const point = under(event), draft = layer.draft || [];
    const [x, y] = at(point), near = (other) => { const [u, v] = at(other); return Math.hypot(x - u, y - v) < 8; };
    if (draft.length > 2 && near(draft[0])) { add(draft); return; }
    if (!draft.length || !near(draft.at(-1))) layer.draft = [...draft, point];
    again();
  };
  const drag = (event) => {
    if (mode !== "rectangle" || !layer.from) return;
    const [x, y] = layer.from, [u, v] = under(event);
    layer.draft = [[x, y], [u, y], [u, v], [x, v]];
    again();
  };
  const end = (event) => {
    event.stopPropagation();
    if (mode !== "rectangle" || !layer.from) return;
    layer.from = null;
    if (layer.draft && areaOf(layer.draft) * frame.zoom ** 2 > 30) add(layer.draft); else layer.draft = null;
    again();
  };
  // Drag a corner, or the whole region by its middle.
  const handle = (n, k) => ({
    onPointerDown: (event) => { stop(event); event.currentTarget.setPointerCapture(event.pointerId); layer.held = { at: under(event), corners: regions[n].corners }; change(regions); },
    onPointerMove: (event) => {
      if (!layer.held) return;
      const [x, y] = under(event), { corners, at: [u, v] } = layer.held;
      replace(n, k < 0 ? moved(corners, x - u, y - v) : corners.map((c, m) => m === k ? [x, y] : c), false);
    },
    onPointerUp: (event) => { stop(event); layer.held = null; },
    onKeyDown: (event) => {
      const { corners } = regions[n];
      const step = (event.shiftKey ? 1 : STEP) / frame.zoom, arrow = ARROWS[event.key];
      if (arrow) replace(n, k < 0 ? moved(corners, arrow[0] * step, arrow[1] * step) : corners.map((c, m) => m === k ? [c[0] + arrow[0] * step, c[1] + arrow[1] * step] : c));
      else if (k >= 0 && (event.key === "+" || event.key === "=")) { const next = corners[(k + 1) % corners.length]; replace(n, corners.toSpliced(k + 1, 0, [(corners[k][0] + next[0]) / 2, (corners[k][1] + next[1]) / 2])); }
      else if (k >= 0 && event.key === "Delete" && corners.length > 3) replace(n, corners.toSpliced(k, 1));
      else if (k < 0 && event.key === "Delete") { change(regions.toSpliced(n, 1)); choose(-1); }
      else if (k < 0 && (event.key === "+" || event.key === "-")) { const box = boxOf(corners), x = (box.x + box.right) / 2, y = (box.y + box.bottom) / 2, by = event.key === "+" ? 1.1 : 1 / 1.1; replace(n, corners.map((c) => [x + (c[0] - x) * by, y + (c[1] - y) * by])); }
      else return;
      event.preventDefault(); stop(event);
    },
  });
  const path = (corners) => corners.map((c, n) => `${n ? "L" : "M"}${at(c).map((v) => v.toFixed(1)).join(" ")}`).join("") + "Z";
  const shown = regions[chosen];
  const name = (n) => regions[n].label || `region ${n + 1}`;
  render(html`<svg class="draw" role="group" aria-label="regions drawn by hand">
    ${regions.map((region, n) => html`<path key=${`r${n}`} data-region=${n} d=${path(region.corners)} fill=${INK} fill-opacity=${n === chosen ? 0.14 : 0.05} stroke=${INK} stroke-width=${n === chosen ? 3 : 2}
      onPointerDown=${mode ? null : (event) => { if (n !== chosen) return; handle(n, -1).onPointerDown(event); }} onPointerMove=${n === chosen ? handle(n, -1).onPointerMove : null} onPointerUp=${n === chosen ? handle(n, -1).onPointerUp : null}
      onClick=${() => choose(n)} class=${n === chosen ? "held" : ""}/>
      <text key=${`t${n}`} x=${at(region.corners[0])[0]} y=${at(region.corners[0])[1] - 8} class="tag">${name(n)}</text>`)}
    ${mode ? html`<rect class="catch" width="100%" height="100%" onPointerDown=${begin} onPointerMove=${drag} onPointerUp=${end} onDblClick=${(event) => { stop(event); layer.close(); }}/>` : null}
    ${layer.draft ? html`<path d=${path(layer.draft)} fill=${INK} fill-opacity="0.1" stroke=${INK} stroke-width="2" stroke-dasharray="6 4"/>${layer.draft.map((c) => html`<circle cx=${at(c)[0]} cy=${at(c)[1]} r="4" fill=${INK}/>`)}` : null}
    ${shown && !mode ? html`${shown.corners.map((c, k) => html`<circle key=${`c${k}`} class="grip" tabindex="0" role="button" data-corner=${k} cx=${at(c)[0]} cy=${at(c)[1]} r="6" ...${handle(chosen, k)}
        aria-label=${`corner ${k + 1} of ${shown.corners.length} of ${name(chosen)}: arrows move it, plus adds one after it, Delete removes it`}/>`)}
      ${(() => { const box = boxOf(shown.corners), [x, y] = at([(box.x + box.right) / 2, (box.y + box.bottom) / 2]);
        return html`<rect key="middle" class="grip" tabindex="0" role="button" data-middle x=${x - 6} y=${y - 6} width="12" height="12" ...${handle(chosen, -1)} aria-label=${`${name(chosen)}: arrows move it, plus and minus change its size, Delete removes it`}/>`; })()}` : null}
  </svg>`, layer);
}

// The list beside the slide.
export function Regions({ held, layer, frame, slide, goTo, measure, overlay }) {
  const [found, setFound] = useState(null);
  const { regions, chosen, choose, mode, setMode, change, site } = held;
  const [person, setPerson] = useState(site.user_fixed ? site.user : localStorage.getItem("reviewer") || "");
  const first = useRef(false);
  useEffect(() => {
    const keys = (event) => {
      if (event.key === "Escape") { layer.current.draft = null; setMode(""); }
      else if (event.key === "Enter" && mode === "polygon" && layer.current.draft?.length > 2) { layer.current.close(); event.preventDefault(); }
    };
    const leaving = (event) => { if (held.dirty) event.preventDefault(); };
    if (mode) addEventListener("keydown", keys);
    addEventListener("beforeunload", leaving);
    return () => { removeEventListener("keydown", keys); removeEventListener("beforeunload", leaving); };
  }, [mode, held.dirty]);
  useEffect(() => { if (first.current && chosen >= 0) requestAnimationFrame(() => { if (first.current) layer.current?.querySelector("[data-middle]")?.focus(); first.current = false; }); });
  const middle = () => {
    const { x, y, width, height } = frame.current, w = width / 6, h = height / 6;
    const clip = ([u, v]) => [Math.min(slide.width, Math.max(0, u)), Math.min(slide.height, Math.max(0, v))];
    change([...regions, { label: "", corners: [[x - w, y - h], [x + w, y - h], [x + w, y + h], [x - w, y + h]].map(clip) }]);
    first.current = true; choose(regions.length); setMode("");
  };
  const edit = (n) => { first.current = true; choose(n); };
  const search = async (n) => {
    const mpp = slide.mpp ? null : Number(prompt("µm per pixel of this slide (a 40x scan has about 0.25, a 20x scan about 0.5)"));
    if (!slide.mpp && !(mpp > 0)) return;
    choose(n); setFound({ busy: true });
    try {
      const answer = await api("/api/slides/nuclei", { body: { slide: slide.path, region: regions[n], mpp } });
      setFound(answer); overlay({ name: "nuclei found here", path: "nuclei", kind: "found" }, answer.shapes);
    } catch (e) { setFound({ error: e.message }); }
  };
  const tool = (which, words) => html`<button type="button" data-draw=${which} aria-pressed=${mode === which} onClick=${() => { layer.current.draft = null; setMode(mode === which ? "" : which); }}>${words}</button>`;
  const mm2 = (corners) => slide.mpp ? `${number(areaOf(corners) * slide.mpp ** 2 / 1e6)} mm²` : `${number(areaOf(corners))} px²`;
  return html`<section class="panel" id="regions" aria-label="Regions"><h3>Regions</h3>
    <div class="row">${tool("polygon", "Polygon")}${tool("rectangle", "Rectangle")}<button type="button" id="add-middle" onClick=${middle}>Add in the middle</button><button type="button" class="plain" disabled=${!held.past.length} onClick=${held.undo}>Undo</button></div>
    <p class="small soft" role="status">${mode === "polygon" ? "Click each corner; Enter, a double click or the first corner closes it, Escape leaves it." : mode === "rectangle" ? "Drag from corner to corner; Escape leaves it." : regions.length ? "Choose a region to move it, its corners or its size." : "None yet. “Add in the middle” works with the keyboard alone."}</p>
    <ul class="regions">${regions.map((region, n) => html`<li key=${n} class=${n === chosen ? "chosen" : ""}><input aria-label=${`label of region ${n + 1}`} list="region-labels" maxlength="80" placeholder=${`region ${n + 1}`} value=${region.label} onFocus=${() => choose(n)} onInput=${(e) => change(regions.map((r, k) => k === n ? { ...r, label: e.target.value } : r), false)}/>
      <span class="soft small">${mm2(region.corners)}</span><span class="row tight">
        <button type="button" class="plain" onClick=${() => { const b = boxOf(region.corners); goTo({ x: (b.x + b.right) / 2, y: (b.y + b.bottom) / 2, width: 1.6 * Math.max(b.right - b.x, b.bottom - b.y) }); }}>show</button>
        <button type="button" class="plain" data-edit=${n} onClick=${() => edit(n)}>edit</button>
        ${measure ? html`<button type="button" class="plain" data-measure=${n} onClick=${() => { choose(n); measure(n); }}>measure</button>` : null}
        <button type="button" class="plain" data-nuclei=${n} ...${only("run", Boolean(found?.busy))} onClick=${() => search(n)}>find nuclei</button>
        <button type="button" class="plain" data-remove=${n} aria-label=${`delete ${region.label || `region ${n + 1}`}`} onClick=${() => { change(regions.toSpliced(n, 1)); choose(-1); }}>delete</button></span></li>`)}</ul>
    <datalist id="region-labels">${LABELS.map((label) => html`<option value=${label}/>`)}</datalist>
    <div class="row">${site.user_fixed ? html`<span class="small">as ${site.user}</span>` : html`<label>Your name <input id="drawn-by" size="12" value=${person} onInput=${(e) => { setPerson(e.target.value); localStorage.setItem("reviewer", e.target.value); }}/></label>`}
      <button type="button" id="save-regions" class="first" ...${only("review", !held.dirty || !person.trim())} onClick=${() => held.save(person)}>Save</button>${held.dirty ? html`<span class="pill warn">not saved</span>` : null}</div>
    <${Wrong} error=${held.wrong || found?.error}/>
    ${found?.busy ? html`<p class="small soft" role="status">Looking for nuclei …</p>` : found?.nuclei != null ? html`<div class="small" id="nuclei" role="status"><p>${found.nuclei.toLocaleString("en-US")} nuclei in ${number(found.area_mm2)} mm² of tissue (${found.method}, ${number(found.at_mpp)} µm per pixel): ${Object.entries(found.types).filter(([, n]) => n).map(([kind, n]) => `${kind} ${n.toLocaleString("en-US")}`).join(", ") || "no types"}</p>
      ${found.warnings.map((text) => html`<p class="said warn">${text}</p>`)}</div>` : null}
    ${held.base ? html`<p class="tiny soft long" id="regions-file">GeoJSON for QuPath and for the tools' <code>regions</code> and <code>within</code>: ${held.file}</p>` : null}
  </section>`;
}
