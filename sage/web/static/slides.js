// Slides: deep zoom, what was found on them, a scale bar, and where a reader looked.
import { html, api, count, useEffect, useLoaded, useRef, useState, Wrong } from "./lib.js";

const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#b15928"];
const query = (path, more = {}) => new URLSearchParams({ path, ...more });
const rgba = (color) => { const n = parseInt(color.slice(1), 16); return 0xff000000 | ((n & 255) << 16) | (n & 0xff00) | (n >> 16); };
let loading;

// OpenSeadragon is a classic script; its hash is that of the import map.
function openSeadragon() {
  loading ||= new Promise((done, failed) => {
    const map = JSON.parse(document.querySelector("script[type=importmap]").textContent);
    const script = document.createElement("script");
    script.src = map.imports.openseadragon;
    script.integrity = map.integrity[script.getAttribute("src")];
    script.onload = () => done(globalThis.OpenSeadragon);
    script.onerror = () => failed(new Error("the viewer could not be loaded"));
    document.head.append(script);
  });
  return loading;
}

// Cells are drawn as pixels of one image: hundreds of thousands cost what a few do.
function drawCells(ctx, cells, frame) {
  const { width, height } = ctx.canvas;
  const image = ctx.getImageData(0, 0, width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const size = Math.max(1, Math.min(9, Math.round(frame.scale * 16)));
  const half = size >> 1;
  let drawn = 0;
  for (let i = 0; i < cells.n; i += 1) {
    const x = Math.round((cells.at[2 * i] - frame.left) * frame.scale) - half;
    const y = Math.round((cells.at[2 * i + 1] - frame.top) * frame.scale) - half;
    if (x < 0 || y < 0 || x + size > width || y + size > height) continue;
    const color = cells.colors[cells.types[i]];
    for (let row = y; row < y + size; row += 1) pixels.fill(color, row * width + x, row * width + x + size);
    drawn += 1;
  }
  ctx.putImageData(image, 0, 0);
  return drawn;
}

function drawShapes(ctx, layer, frame) {
  ctx.lineWidth = 2;
  for (const shape of layer.shapes) {
    if (shape.box[2] < frame.left || shape.box[3] < frame.top || shape.box[0] > frame.right || shape.box[1] > frame.bottom) continue;
    ctx.strokeStyle = layer.color(shape.kind);
    ctx.beginPath();
    for (const ring of shape.rings) {
      ring.forEach(([x, y], n) => ctx[n ? "lineTo" : "moveTo"]((x - frame.left) * frame.scale, (y - frame.top) * frame.scale));
      ctx.closePath();
    }
    ctx.stroke();
  }
}

async function layerOf(overlay, slide) {
  if (overlay.kind === "outlines") {
    const { shapes } = await api(`/api/slides/outlines?${query(overlay.path)}`);
    const kinds = [...new Set(shapes.map((shape) => shape.kind))];
    for (const shape of shapes) {
      const xs = shape.rings.flat().map((p) => p[0]), ys = shape.rings.flat().map((p) => p[1]);
      const least = (v) => v.reduce((a, b) => Math.min(a, b)), most = (v) => v.reduce((a, b) => Math.max(a, b));
      shape.box = [least(xs), least(ys), most(xs), most(ys)];
    }
    return { ...overlay, shapes, n: shapes.length, kinds, color: (kind) => COLORS[kinds.indexOf(kind) % COLORS.length] };
  }
  const reply = await fetch(`/api/slides/cells?${query(overlay.path, { slide })}`);
  if (!reply.ok) throw new Error((await reply.json()).error);
  const bytes = new Uint8Array(await reply.arrayBuffer());
  const end = bytes.indexOf(10) + 1;
  const { n, types } = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const colors = new Uint32Array(256).fill(rgba("#808080"));
  types.forEach((_, k) => { colors[k] = rgba(COLORS[k % COLORS.length]); });
  return { ...overlay, n, kinds: types, colors, at: new Float32Array(bytes.buffer, end, 2 * n), types: bytes.subarray(end + 8 * n), color: (kind) => COLORS[types.indexOf(kind) % COLORS.length] };
}

function scaleBar(mpp, scale) {
  const wanted = 140 / scale * mpp;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const um = [5, 2, 1].map((k) => k * power).find((v) => v <= wanted);
  return { px: um / mpp * scale, words: um >= 1000 ? `${um / 1000} mm` : `${um} µm` };
}

function Viewer({ path, onFrame, follow, title }) {
  const place = useRef(), canvas = useRef(), viewer = useRef(), layers = useRef([]);
  const { data, error } = useLoaded(`/api/slides/about?${query(path)}`);
  const [shown, setShown] = useState([]);
  const [bar, setBar] = useState(null);
  const [wrong, setWrong] = useState("");
  const redraw = useRef(() => {});
  useEffect(() => {
    if (!data) return undefined;
    let live = true;
    openSeadragon().then((OSD) => {
      if (!live) return;
      const osd = viewer.current = OSD({
        element: place.current, showNavigationControl: false, showNavigator: false, animationTime: 0.5, drawer: "canvas", crossOriginPolicy: false,
        maxZoomPixelRatio: 4, imageLoaderLimit: 8, tileSources: { width: data.width, height: data.height, tileSize: data.tile, tileOverlap: 0, minLevel: 0, maxLevel: data.levels,
          getTileUrl: (level, x, y) => `/api/slides/tile?${query(path, { level, x, y })}` },
      });
      redraw.current = () => {
        if (!osd.world.getItemCount() || !canvas.current) return;
        const item = osd.world.getItemAt(0), box = osd.viewport.getBounds(true), area = item.viewportToImageRectangle(box);
        const ratio = devicePixelRatio || 1, width = Math.round(place.current.clientWidth * ratio), height = Math.round(place.current.clientHeight * ratio);
        const ctx = canvas.current.getContext("2d", { willReadFrequently: true });
        if (canvas.current.width !== width || canvas.current.height !== height) { canvas.current.width = width; canvas.current.height = height; }
        ctx.clearRect(0, 0, width, height);
        const frame = { left: area.x, top: area.y, right: area.x + area.width, bottom: area.y + area.height, scale: width / area.width };
        let drawn = 0;
        const begun = performance.now();
        for (const layer of layers.current) if (layer.at) drawn += drawCells(ctx, layer, frame);
        for (const layer of layers.current) if (layer.shapes) drawShapes(ctx, layer, frame);
        canvas.current.dataset.drawn = drawn;
        canvas.current.dataset.ms = performance.now() - begun;
        if (data.mpp) setBar(scaleBar(data.mpp, frame.scale / ratio));
        onFrame?.({ x: area.x + area.width / 2, y: area.y + area.height / 2, width: area.width, height: area.height, zoom: frame.scale / ratio });
      };
      osd.addHandler("update-viewport", () => redraw.current());
      osd.addHandler("open", () => { place.current.dataset.open = "yes"; redraw.current(); });
      place.current.osd = osd;
      follow?.(osd);
    }, (e) => setWrong(e.message));
    return () => { live = false; viewer.current?.destroy(); };
  }, [data]);
  const toggle = async (overlay) => {
    try {
      if (shown.some((layer) => layer.path === overlay.path)) layers.current = layers.current.filter((layer) => layer.path !== overlay.path);
      else layers.current = [...layers.current, await layerOf(overlay, path)];
      setWrong(""); setShown(layers.current); redraw.current();
    } catch (e) { setWrong(e.message); }
  };
  const keys = (event) => {
    const osd = viewer.current; if (!osd) return;
    const step = osd.viewport.getBounds().width / 8, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (moves[event.key]) osd.viewport.panBy(new OpenSeadragon.Point(...moves[event.key]));
    else if (event.key === "+" || event.key === "=") osd.viewport.zoomBy(1.5);
    else if (event.key === "-") osd.viewport.zoomBy(1 / 1.5);
    else if (event.key === "0") osd.viewport.goHome();
    else return;
    osd.viewport.applyConstraints(); event.preventDefault();
  };
  return html`<section aria-label=${title}><${Wrong} error=${error || wrong}/>
    ${data ? html`<p class="small soft">${data.name}: ${count(data.width)} × ${count(data.height)} px, ${data.mpp ? `${data.mpp.toFixed(3)} µm per pixel` : "pixel size unknown"}${data.objective ? `, ${data.objective}×` : ""}</p>` : null}
    <div class="slide" onKeyDown=${keys}><div class="osd" tabindex="0" role="application" aria-label=${`${title}: arrows move, plus and minus zoom, 0 shows all`} ref=${place}></div><canvas class="over" ref=${canvas} aria-hidden="true"></canvas>
      ${bar ? html`<div class="scale" data-um=${bar.words} style=${{ width: `${bar.px}px` }}>${bar.words}</div>` : null}</div>
    <div class="row">${data?.overlays.map((overlay) => html`<label><input type="checkbox" data-overlay=${overlay.name} checked=${shown.some((layer) => layer.path === overlay.path)} onChange=${() => toggle(overlay)}/> ${overlay.name}</label>`)}</div>
    ${shown.map((layer) => html`<p class="small">${layer.name}: ${count(layer.n)} ${layer.at ? "cells" : "outlines"} ${layer.kinds.map((kind) => html`<span class="key"><svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" fill=${layer.color(kind)}/></svg> ${kind || "unnamed"} </span>`)}</p>`)}
  </section>`;
}

function Recorder({ path, frame }) {
  const [reader, setReader] = useState(localStorage.getItem("reviewer") || "");
  const [consent, setConsent] = useState(false);
  const [state, setState] = useState("off");
  const [wrong, setWrong] = useState("");
  const kept = useRef({ recording: "", glances: [], begun: 0 });
  const { data, load } = useLoaded("/api/slides/recordings");
  const send = async () => {
    const glances = kept.current.glances.splice(0, 500);
    if (!glances.length) return;
    try { kept.current.recording = (await api("/api/slides/recordings", { body: { recording: kept.current.recording, slide: path, reader, consent, glances } })).recording; load(); }
    catch (e) { setWrong(e.message); setState("off"); }
  };
  useEffect(() => {
    if (state !== "on") return undefined;
    if (!kept.current.begun) kept.current.begun = performance.now();
    const look = setInterval(() => { if (frame.current && !document.hidden) kept.current.glances.push({ t: performance.now() - kept.current.begun, ...frame.current }); }, 100);
    const keep = setInterval(send, 2000);
    return () => { clearInterval(look); clearInterval(keep); send(); };
  }, [state]);
  const end = () => { setState("off"); setTimeout(() => { kept.current = { recording: "", glances: [], begun: 0 }; load(); }, 500); };
  const drop = (name) => api(`/api/slides/recordings/${name}/delete`, { body: {} }).then(load, (e) => setWrong(e.message));
  return html`<section id="recorder" class="panel" aria-label="Recorder"><h3>Record where I look</h3>
    <p class="small">While it records, the part of the slide on the screen is kept ten times a second with the time, on this machine alone. Nothing is kept while it is paused; a recording can be deleted.</p>
    <div class="row"><label>Your name <input id="reader" value=${reader} onInput=${(e) => setReader(e.target.value)}/></label>
      <label><input type="checkbox" id="consent" checked=${consent} onChange=${(e) => { setConsent(e.target.checked); if (!e.target.checked) end(); }}/> I agree to be recorded</label>
      <button type="button" id="record" disabled=${!consent || !reader.trim()} onClick=${() => setState(state === "on" ? "paused" : "on")}>${state === "on" ? "Pause" : state === "paused" ? "Go on" : "Record"}</button>
      ${state === "off" ? null : html`<button type="button" id="end" onClick=${end}>End</button>`}<span role="status" class=${state === "on" ? "pill bad" : "pill"}>${state === "on" ? "recording" : state}</span></div><${Wrong} error=${wrong}/>
    <ul class="small">${data?.map((item) => html`<li data-recording=${item.recording}>${item.slide}, ${item.reader}, ${item.begun.slice(0, 16).replace("T", " ")}: ${count(item.views)} views <button type="button" class="plain" onClick=${() => drop(item.recording)}>delete</button></li>`)}</ul></section>`;
}

function Side({ paths, frame }) {
  const viewers = useRef([]);
  const follow = (osd) => {
    viewers.current = [...viewers.current, osd];
    let own = true;
    osd.addHandler("update-viewport", () => {
      if (!own) return;
      for (const other of viewers.current) if (other !== osd && other.viewport && !other.leading) {
        osd.leading = true; other.viewport.zoomTo(osd.viewport.getZoom(), null, true); other.viewport.panTo(osd.viewport.getCenter(), true); osd.leading = false;
      }
    });
    osd.addHandler("destroy", () => { own = false; });
  };
  return html`<div class="grid">${paths.map((path, n) => html`<${Viewer} key=${path + n} path=${path} title=${`slide ${n + 1}`} follow=${paths.length > 1 ? follow : null} onFrame=${n ? null : (f) => { frame.current = f; }}/>`)}</div>`;
}

export function Slides({ query: asked, go }) {
  const { data, error } = useLoaded("/api/slides");
  const path = asked.get("path"), beside = asked.get("beside");
  const frame = useRef(null);
  const name = (value) => data?.find((item) => item.path === value)?.name || value;
  if (path) return html`<h1>${name(path)}</h1>
    <${Side} paths=${beside ? [path, beside] : [path]} frame=${frame}/>
    <p><label>Beside it <select value=${beside || ""} onChange=${(e) => go(`/slides?${query(path, e.target.value ? { beside: e.target.value } : {})}`)}><option value="">nothing</option>${data?.map((item) => html`<option value=${item.path}>${item.name}</option>`)}</select></label></p>
    <${Recorder} path=${path} frame=${frame}/><p><a href="/slides">All slides</a></p>`;
  return html`<h1>Slides</h1><${Wrong} error=${error}/>
    ${data && !data.length ? html`<p>No slide lies below the folders that are shown. Start <code>sage serve --root FOLDER</code>.</p>` : null}
    <ul>${data?.map((item) => html`<li><a href=${`/slides?${query(item.path)}`}>${item.name}</a> <span class="soft small">${(item.bytes / 1e6).toFixed(1)} MB</span></li>`)}</ul>`;
}
