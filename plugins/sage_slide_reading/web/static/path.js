// A way over a slide: places in the order in which they were looked at, and a player for it. A
// reading's path and a recorded session are drawn by the same function.
import { html, useEffect, useState } from "/static/lib.js";

export const KINDS = { overview: "#56b4e9", inspected: "#0072b2", answer: "#d55e00", now: "#d81b60" };
const NEAR = 24; // pixels of the screen below which a number would cover its box

// way: {places: [{x, y, width, height, kind, edited}], at, now, trail}; boxes in level-0 pixels, `at`
// the place that is shown, `now` a box that is being looked at, `trail` the boxes that the line goes
// through, if not the places. Returns how many places were drawn.
export function drawPath(ctx, way, frame) {
  const place = (x, y) => [(x - frame.left) * frame.scale, (y - frame.top) * frame.scale];
  const middle = (box) => place(box.x + box.width / 2, box.y + box.height / 2);
  const outline = (box) => { const [x, y] = place(box.x, box.y); ctx.strokeRect(x, y, box.width * frame.scale, box.height * frame.scale); };
  const until = way.places.slice(0, way.at + 1);
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.lineJoin = "round";
  for (const [color, width] of [["#ffffffcc", 4], ["#1b1f24", 1.5]]) {
    ctx.strokeStyle = color; ctx.lineWidth = width * ratio;
    ctx.beginPath();
    (way.trail || until).forEach((box, n) => ctx[n ? "lineTo" : "moveTo"](...middle(box)));
    ctx.stroke();
  }
  ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center"; ctx.textBaseline = "middle";
  until.forEach((box, n) => {
    const last = n === way.at;
    ctx.strokeStyle = KINDS[box.kind] || KINDS.overview; ctx.lineWidth = (last ? 4 : 2) * ratio;
    outline(box);
    if (!last && box.width * frame.scale < NEAR * ratio) return;
    const [x, y] = middle(box), r = (last ? 12 : 10) * ratio;
    ctx.fillStyle = last ? ctx.strokeStyle : "#ffffffe6";
    ctx.beginPath(); ctx.arc(x, y, r, 0, 2 * Math.PI); ctx.fill(); ctx.lineWidth = ratio; ctx.stroke();
    ctx.fillStyle = last ? "#fff" : "#1b1f24";
    ctx.fillText(String(n + 1), x, y);
  });
  if (way.now) { ctx.strokeStyle = KINDS.now; ctx.lineWidth = 3 * ratio; ctx.setLineDash([8 * ratio, 5 * ratio]); outline(way.now); }
  ctx.restore();
  return until.length;
}

// Where one stands in `count` places: back, forth, and by itself every `ms`, which may depend on it.
export function usePlayer(count, ms = 1200) {
  const [at, setAt] = useState(-1);
  const [playing, setPlaying] = useState(false);
  const last = count - 1, here = Math.min(at, last);
  useEffect(() => {
    if (!playing) return undefined;
    if (here >= last) { setPlaying(false); return undefined; }
    const next = setTimeout(() => setAt(here + 1), typeof ms === "function" ? ms(here) : ms);
    return () => clearTimeout(next);
  }, [playing, here, last]);
  const step = (by) => { setPlaying(false); setAt(Math.max(0, Math.min(last, here + by))); };
  const toggle = () => { if (!playing && here >= last) setAt(0); setPlaying(!playing); };
  return { at: here, last, playing, step, toggle, to: (n) => { setPlaying(false); setAt(n); } };
}

export function Player({ player, name }) {
  const { at, last, playing } = player;
  return html`<div class="row tight" role="group" aria-label=${name}>
    <button type="button" data-play="back" disabled=${at <= 0} onClick=${() => player.step(-1)}>Back</button>
    <button type="button" data-play="play" aria-pressed=${playing} disabled=${last < 0} onClick=${player.toggle}>${playing ? "Pause" : "Play"}</button>
    <button type="button" data-play="step" disabled=${at >= last} onClick=${() => player.step(1)}>Step</button>
    <input type="range" aria-label="place in the path" min="0" max=${Math.max(0, last)} value=${Math.max(0, at)} onInput=${(e) => player.to(Number(e.target.value))}/>
    <span class="small" data-at=${at + 1}>${at + 1} of ${last + 1}</span></div>`;
}
