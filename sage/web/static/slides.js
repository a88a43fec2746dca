// Slides: deep zoom, what was found on them, a scale bar, and panels of plugins beside them.
import { html, api, count, Plugin, useEffect, useLoaded, useRef, useState, Wrong } from "./lib.js";
import { drawRegions, Regions, useRegions } from "./regions.js";
import { drawHeat, Heat, Measurements } from "./slidemaps.js";

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

// Cells are drawn as pixels of one image: hundreds of thousands cost what a few do. While the slide
// moves, every few of them; all of them once it rests.
const MOVING = 60_000;
function drawCells(ctx, cells, frame, moving) {
  const { width, height } = ctx.canvas;
  const image = ctx.getImageData(0, 0, width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const size = Math.max(1, Math.min(9, Math.round(frame.scale * 16)));
  const half = size >> 1;
  let drawn = 0;
  const step = moving ? Math.ceil(cells.n / MOVING) : 1;
  for (let i = 0; i < cells.n; i += step) {
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

async function layerOf(overlay, slide, given) {
  if (given || overlay.kind === "outlines") {
    const { shapes, notes } = given ? { shapes: given } : await api(`/api/slides/outlines?${query(overlay.path)}`);
    const kinds = [...new Set(shapes.map((shape) => shape.kind))];
    for (const shape of shapes) {
      const xs = shape.rings.flat().map((p) => p[0]), ys = shape.rings.flat().map((p) => p[1]);
      const least = (v) => v.reduce((a, b) => Math.min(a, b)), most = (v) => v.reduce((a, b) => Math.max(a, b));
      shape.box = [least(xs), least(ys), most(xs), most(ys)];
    }
    return { ...overlay, shapes, notes, n: shapes.length, kinds, color: (kind) => COLORS[kinds.indexOf(kind) % COLORS.length] };
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

// Where an address leads to: #x=..&y=..&zoom=.. in level-0 pixels and pixels of the screen for each.
function placeOf(hash) {
  const [x, y, zoom] = ["x", "y", "zoom"].map((key) => Number.parseFloat(new URLSearchParams(hash.slice(1)).get(key)));
  return [x, y, zoom].every(Number.isFinite) && zoom > 0 ? { x, y, zoom } : null;
}

function Viewer({ path, join, title, site, leads, children }) {
  const place = useRef(), canvas = useRef(), viewer = useRef(), layers = useRef([]), layer = useRef(), frame = useRef(null), heatOn = useRef(null), drawing = useRef(null);
  const { data, error } = useLoaded(`/api/slides/about?${query(path)}`);
  const [shown, setShown] = useState([]);
  const [bar, setBar] = useState(null);
  const [wrong, setWrong] = useState("");
  const [heat, setHeat] = useState(null);
  const [cells, setCells] = useState(null);
  const [where, setWhere] = useState(-1);
  const held = useRegions(path, site), latest = useRef(held);
  latest.current = held;
  const redraw = useRef(() => {});
  const show = (draw) => { drawing.current = draw; redraw.current(); }; // (context, frame) => places drawn
  const goTo = ({ x, y, width, zoom }) => {
    const osd = viewer.current, wide = width || place.current.clientWidth / zoom, high = wide * place.current.clientHeight / place.current.clientWidth;
    osd?.viewport.fitBounds(osd.world.getItemAt(0).imageToViewportRectangle(x - wide / 2, y - high / 2, wide, high));
  };
  useEffect(() => {
    if (!data) return undefined;
    let live = true, later = 0, moving = false;
    const lead = () => { const to = placeOf(location.hash); if (to && leads) goTo(to); };
    openSeadragon().then((OSD) => {
      if (!live) return;
      const osd = viewer.current = OSD({
        element: place.current, showNavigationControl: false, showNavigator: false, animationTime: 0.5, drawer: "canvas", crossOriginPolicy: false, gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
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
        const seen = { left: area.x, top: area.y, right: area.x + area.width, bottom: area.y + area.height, scale: width / area.width };
        let drawn = 0;
        const begun = performance.now();
        if (heatOn.current) canvas.current.dataset.squares = drawHeat(ctx, heatOn.current, seen);
        for (const own of layers.current) if (own.at) drawn += drawCells(ctx, own, seen, moving);
        for (const own of layers.current) if (own.shapes) drawShapes(ctx, own, seen);
        if (drawing.current) canvas.current.dataset.visits = drawing.current(ctx, seen);
        canvas.current.dataset.drawn = drawn;
        canvas.current.dataset.ms = performance.now() - begun;
        if (data.mpp) { const now = scaleBar(data.mpp, seen.scale / ratio); setBar((old) => old?.px === now.px && old.words === now.words ? old : now); }
        frame.current = { x: area.x + area.width / 2, y: area.y + area.height / 2, width: area.width, height: area.height, left: area.x, top: area.y, zoom: seen.scale / ratio, screen: `${width} ${height}` };
        if (layer.current) drawRegions(layer.current, latest.current, frame.current, data);
        const { x, y, zoom } = frame.current;
        clearTimeout(later);
        if (leads) later = setTimeout(() => { if (live) history.replaceState(history.state, "", `${location.pathname}${location.search}#x=${Math.round(x)}&y=${Math.round(y)}&zoom=${Number(zoom.toPrecision(4))}`); }, 400);
      };
      osd.addHandler("animation-start", () => { moving = true; });
      osd.addHandler("animation-finish", () => { moving = false; redraw.current(); });
      osd.addHandler("update-viewport", () => redraw.current());
      osd.addHandler("open", () => {
        canvas.current = Object.assign(document.createElement("canvas"), { className: "over", ariaHidden: "true" });
        layer.current = Object.assign(document.createElement("div"), { className: "drawn" });
        osd.canvas.append(canvas.current, layer.current); // the handles above what was found
        lead();
        place.current.dataset.open = "yes"; redraw.current(); join?.(osd, data.mpp);
      });
      place.current.osd = osd;
    }, (e) => setWrong(e.message));
    addEventListener("hashchange", lead);
    return () => { live = false; clearTimeout(later); removeEventListener("hashchange", lead); viewer.current?.destroy(); };
  }, [data]);
  const goHome = () => viewer.current?.viewport.goHome(), element = () => place.current?.parentElement;
  useEffect(() => { heatOn.current = heat; redraw.current(); }, [heat]);
  useEffect(() => { if (layer.current && frame.current) drawRegions(layer.current, held, frame.current, data); });
  const toggle = async (overlay) => {
    try {
      if (shown.some((own) => own.path === overlay.path)) layers.current = layers.current.filter((own) => own.path !== overlay.path);
      else layers.current = [...layers.current, await layerOf(overlay, path)];
      setWrong(""); setShown(layers.current); redraw.current();
    } catch (e) { setWrong(e.message); }
  };
  const put = async (overlay, shapes) => {
    layers.current = [...layers.current.filter((own) => own.path !== overlay.path), await layerOf(overlay, path, shapes)];
    setShown(layers.current); redraw.current();
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
  const all = data?.overlays.filter((overlay) => overlay.kind === "cells") || [];
  const maps = all.find((overlay) => overlay.path === cells) || all[0];
  return html`<section aria-label=${title}><${Wrong} error=${error || wrong}/>
    ${data ? html`<p class="small soft">${data.name}: ${count(data.width)} × ${count(data.height)} px, ${data.mpp ? `${data.mpp.toFixed(3)} µm per pixel` : "pixel size unknown"}${data.objective ? `, ${data.objective}×` : ""}</p>` : null}
    ${data?.warnings.map((note) => html`<p class="small soft">${note}</p>`)}
    <div class="beside"><div>
      <div class="slide" onKeyDown=${keys}><div class="osd" tabindex="0" role="application" aria-label=${`${title}: arrows move, plus and minus zoom, 0 shows all`} ref=${place}></div>
        ${bar ? html`<div class="scale" data-um=${bar.words} style=${{ width: `${bar.px}px` }}>${bar.words}</div>` : null}</div>
      <div class="row">${data?.overlays.map((overlay) => html`<label><input type="checkbox" data-overlay=${overlay.name} checked=${shown.some((own) => own.path === overlay.path)} onChange=${() => toggle(overlay)}/> ${overlay.name}</label>`)}</div>
      ${shown.map((own) => html`<p class="small">${own.name}: ${count(own.n)} ${own.at ? "cells" : "outlines"} ${own.kinds.map((kind) => html`<span class="key"><svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" fill=${own.color(kind)}/></svg> ${kind || "unnamed"} </span>`)} ${(own.notes || []).join("; ")}</p>`)}
      ${children}
    </div>
    ${data ? html`<div class="panels">
      <${Regions} held=${held} layer=${layer} frame=${frame} slide=${data} goTo=${goTo} measure=${maps ? setWhere : null} overlay=${put}/>
      ${site.pages.flatMap((page) => page.panels).map((script) => html`<${Plugin} key=${script} script=${script} slide=${data} first=${leads} site=${site} frame=${frame} held=${held} goTo=${goTo} goHome=${goHome} show=${show} element=${element}/>`)}
      ${all.length > 1 ? html`<label class="small">Maps <select value=${maps.path} onChange=${(e) => { setCells(e.target.value); setHeat(null); }}>${all.map((overlay) => html`<option value=${overlay.path}>${overlay.name}</option>`)}</select></label>` : null}
      ${maps ? html`<${Heat} key=${maps.path} path=${path} maps=${maps} types=${maps.types || []} heat=${heat} setHeat=${setHeat}/>
        <${Measurements} key=${`m${maps.path}`} path=${path} maps=${maps} region=${where < held.regions.length ? where : -1} setRegion=${setWhere} regions=${held.regions} goTo=${goTo}/>`
        : html`<p class="small soft">No measurements of this slide yet. Make them with <code>sage slides measure</code> or import them with <code>sage exchange maps import</code>.</p>`}
    </div>` : null}</div>
  </section>`;
}

// Two slides move together: the same way in µm, from wherever they were when they were joined.
function Side({ paths, site, children }) {
  const viewers = useRef([]), together = useRef(true);
  const [joined, setJoined] = useState(true);
  const at = ({ osd, mpp }) => { const item = osd.world.getItemAt(0), center = item.viewportToImageCoordinates(osd.viewport.getCenter()); return { x: center.x * mpp, y: center.y * mpp, zoom: item.viewportToImageZoom(osd.viewport.getZoom()) / mpp }; };
  const anchor = () => { for (const own of viewers.current) own.from = at(own); };
  const join = (osd, mpp) => {
    const own = { osd, mpp: mpp || 1 };
    viewers.current = [...viewers.current.filter((other) => other.osd.viewport), own];
    if (mpp && viewers.current.length > 1) osd.viewport.zoomTo(osd.world.getItemAt(0).imageToViewportZoom(at(viewers.current[0]).zoom * mpp), null, true);
    anchor();
    osd.addHandler("update-viewport", () => {
      if (!together.current || own.led || !osd.viewport) return;
      const now = at(own);
      for (const other of viewers.current) {
        if (other === own || !other.osd.viewport) continue;
        const item = other.osd.world.getItemAt(0);
        other.led = true;
        other.osd.viewport.zoomTo(item.imageToViewportZoom(other.from.zoom * now.zoom / own.from.zoom * other.mpp), null, true);
        other.osd.viewport.panTo(item.imageToViewportCoordinates((other.from.x + now.x - own.from.x) / other.mpp, (other.from.y + now.y - own.from.y) / other.mpp), true);
        other.osd.forceRedraw();
        setTimeout(() => { other.led = false; }, 60);
      }
    });
  };
  const toggle = (on) => { together.current = on; setJoined(on); if (on) anchor(); };
  return html`${paths.length > 1 ? html`<p><label><input type="checkbox" id="together" checked=${joined} onChange=${(e) => toggle(e.target.checked)}/> Move both slides together</label></p>` : null}
    <div class=${paths.length > 1 ? "pair" : ""}>${paths.map((path, n) => html`<${Viewer} key=${path + n} path=${path} site=${site} leads=${!n} title=${`slide ${n + 1}`} join=${paths.length > 1 ? join : null}>${paths.length > 1 ? null : children}<//>`)}</div>${paths.length > 1 ? children : null}`;
}

export function Slides({ query: asked, go, site }) {
  const { data: listed, error } = useLoaded("/api/slides");
  const data = listed?.slides, left = Object.entries(listed?.left_out || {});
  const path = asked.get("path"), beside = asked.get("beside"), wanted = new URLSearchParams(location.hash.slice(1)).get("slide");
  const stem = (name) => name.split("/").at(-1).replace(/\.[^.]+$/, "");
  const meant = wanted && data?.find((item) => item.path === wanted || item.name === wanted || stem(item.name) === wanted);
  useEffect(() => {
    if (path || !meant) return;
    history.replaceState(null, "", `/slides?${query(meant.path)}${location.hash}`);
    dispatchEvent(new PopStateEvent("popstate"));
  }, [meant]);
  const name = (value) => data?.find((item) => item.path === value)?.name || value;
  if (path) return html`<h1>${name(path)}</h1>
    <${Side} paths=${beside ? [path, beside] : [path]} site=${site}>
    <p><label>Compare with <select value=${beside || ""} onChange=${(e) => go(`/slides?${query(path, e.target.value ? { beside: e.target.value } : {})}`)}><option value="">nothing</option>${data?.map((item) => html`<option value=${item.path}>${item.name}</option>`)}</select></label></p>
    <p><a href="/slides">All slides</a></p><//>`;
  return html`<h1>Slides</h1><${Wrong} error=${error || (wanted && data && !meant ? `No slide is named “${wanted}” in the folders that this server shows.` : "")}/>
    ${data && !data.length ? html`<p>No slides yet. Start <code>sage serve --root FOLDER</code> with the folder that holds them.</p>` : null}
    <ul class="thumbs">${data?.map((item) => html`<li key=${item.path}><a href=${`/slides?${query(item.path)}`}><${Thumbnail} path=${item.path}/>${item.name}</a> <span class="soft small">${item.bytes < 1e6 ? `${Math.ceil(item.bytes / 1e3)} kB` : `${(item.bytes / 1e6).toFixed(1)} MB`}</span></li>`)}</ul>
    ${left.length ? html`<p class="soft small">Not listed: ${left.map(([why, n]) => `${n} ${why}`).join("; ")}.</p>` : null}`;
}

function Thumbnail({ path }) {
  const [failed, fail] = useState(false);
  return html`<span class="thumb">${failed ? html`<span class="soft small">no preview</span>` : html`<img loading="lazy" alt="" src=${`/api/slides/thumbnail?${query(path)}`} onError=${() => fail(true)}/>`}</span>`;
}
