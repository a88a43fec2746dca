// Sessions: record where a reader looks on a slide, and play it again.
import { html, api, count, only, useEffect, useLoaded, useRef, useState, Wrong } from "/static/lib.js";
import { drawPath, Player, usePlayer } from "./path.js";

// A session played by its times, a halt at most for a second: the line runs through every view, and an
// action's box appears when it begins.
function Session({ name, goTo, goHome, show }) {
  const { data, error } = useLoaded(`/api/sessions/${name}`);
  const [speed, setSpeed] = useState(2);
  const [along, setAlong] = useState(false);
  const views = data?.views || [], box = ({ x, y, w, h }) => ({ x, y, width: w, height: h });
  const player = usePlayer(views.length, (n) => n < 0 ? 0 : Math.min(1, views[n + 1].t - views[n].t) * 1000 / speed);
  const view = views[player.at];
  useEffect(() => {
    if (!data) return;
    const places = data.actions.filter((action) => !view || action.start_s <= view.t).map((action) => ({ ...box(action), kind: action.kind === "peek" ? "answer" : "inspected" }));
    const way = { places, at: places.length - 1, now: view && box(view), trail: views.slice(0, player.at + 1).map(box) };
    show((ctx, seen) => drawPath(ctx, way, seen));
    if (along && view) goTo({ x: view.x + view.w / 2, y: view.y + view.h / 2, width: view.w });
  }, [data, player.at, along]);
  useEffect(() => { goHome(); return () => show(null); }, []);
  if (!data) return html`<${Wrong} error=${error}/>`;
  return html`<div class="player" data-views=${views.length} data-view=${player.at}><p class="small">${data.header.reader}${data.header.task ? `, “${data.header.task}”` : ""}: ${count(data.events)} views, ${count(data.actions.length)} actions</p>
    <${Player} player=${player} name=${`Session of ${data.header.reader}`}/>
    <div class="row"><label class="small">Speed <select value=${String(speed)} onChange=${(e) => setSpeed(Number(e.target.value))}>${[1, 2, 4, 16].map((v) => html`<option value=${v}>${v}×</option>`)}</select></label>
      <label class="small"><input type="checkbox" checked=${along} onChange=${(e) => setAlong(e.target.checked)}/> move the view along</label>
      ${view ? html`<span class="small" role="status">${view.t.toFixed(1)} s, ${view.kind}, ${Number(view.magnification.toPrecision(2))}×</span>` : null}</div>
    <ol class="small">${data.actions.map((action) => html`<li><code>${action.command}</code> ${action.kind}, ${(action.end_s - action.start_s).toFixed(1)} s</li>`)}</ol></div>`;
}

const TICK = 100, SEND = 2000, LEAST = 0.5; // ms, ms, pixels of the screen

// Ten times a second at most: nothing while the view rests, for it lasts until the next event.
function kindOf(old, now) {
  if (!old) return "open";
  if (old.screen !== now.screen) return "resize";
  if (Math.abs(now.zoom / old.zoom - 1) > 1e-3) return "zoom";
  return Math.hypot(now.x - old.x, now.y - old.y) * now.zoom > LEAST ? "pan" : "";
}

function Recorder({ slide, frame, goTo, goHome, show, element }) {
  const { path } = slide;
  const [reader, setReader] = useState(localStorage.getItem("pseudonym") || "");
  const [task, setTask] = useState("");
  const [consent, setConsent] = useState(false);
  const [state, setState] = useState("off");
  const [wrong, setWrong] = useState("");
  const [told, setTold] = useState({ events: 0, seconds: 0, waiting: 0 });
  const [played, setPlayed] = useState("");
  const { data, load } = useLoaded("/api/sessions");
  const kept = useRef(null);
  const round = (v) => Math.round(v * 10) / 10;
  const note = (kind, view) => {
    const own = kept.current, t = Math.round(performance.now() - own.begun) / 1000;
    own.events.push({ t, kind, x: round(view.x - view.width / 2), y: round(view.y - view.height / 2), w: round(view.width), h: round(view.height), magnification: own.native * view.zoom });
    own.last = kind === "close" ? null : view;
  };
  const look = () => {
    const view = frame.current;
    if (!view || document.hidden || !kept.current) return;
    const kind = kindOf(kept.current.last, view);
    if (kind) note(kind, view);
  };
  const rest = () => { if (kept.current?.last) note("close", kept.current.last); };
  const post = (keepalive) => {
    const own = kept.current, events = own.events.slice(0, 400);
    return events.length ? api(`/api/sessions/${own.name}/events`, { body: { first: own.first, events }, keepalive }).then((found) => {
      own.events.splice(0, found.kept - own.first); own.first = found.kept;
    }) : Promise.resolve();
  };
  // One after the other; what was not kept is sent again, and the server knows it by its number.
  const send = () => {
    const own = kept.current;
    own.sent = (own.sent || Promise.resolve()).then(() => post(false)).catch((e) => { if (!(e instanceof TypeError)) { setWrong(e.message); setState("off"); } });
    return own.sent;
  };
  // The tab may be gone before an answer comes: what is not yet kept leaves at once.
  const leave = () => { if (kept.current) { rest(); post(true).catch(() => {}); } };
  useEffect(() => {
    if (state !== "on") return undefined;
    const hide = () => { if (document.hidden) leave(); };
    const ticking = setInterval(look, TICK);
    const sending = setInterval(() => { send(); const own = kept.current; setTold({ events: own.first + own.events.length, seconds: (performance.now() - own.begun) / 1000, waiting: own.events.length }); }, SEND);
    document.addEventListener("visibilitychange", hide); addEventListener("pagehide", leave);
    element()?.setAttribute("data-recording", "yes");
    look();
    return () => { clearInterval(ticking); clearInterval(sending); document.removeEventListener("visibilitychange", hide); removeEventListener("pagehide", leave);
      element()?.removeAttribute("data-recording"); rest(); send(); };
  }, [state]);
  const begin = async () => {
    setWrong(""); setPlayed("");
    if (state === "paused") { setState("on"); return; }
    try {
      const box = element().getBoundingClientRect(); localStorage.setItem("pseudonym", reader);
      const { name, native } = await api("/api/sessions", { body: { slide: path, reader, task, consent, screen: [Math.round(box.width), Math.round(box.height)] } });
      kept.current = { name, native, first: 0, events: [], begun: performance.now(), last: null }; setTold({ events: 0, seconds: 0, waiting: 0 });
      setState("on");
    } catch (e) { setWrong(e.message); }
  };
  const end = async () => { setState("off"); await new Promise((done) => setTimeout(done, 50)); await kept.current?.sent; await load(); };
  const drop = (name) => api(`/api/sessions/${name}/delete`, { body: {} }).then(() => { setPlayed(""); load(); }, (e) => setWrong(e.message));
  const own = data?.filter((item) => item.slide === path.split("/").at(-1));
  return html`<section id="recorder" class="panel" aria-label="Recorder"><h3>Record where I look</h3>
    <p class="small">While it records, every change of the view is kept with its time, at most ten a second, on this machine alone. Nothing is kept while it is paused or the page is hidden; a session can be deleted.</p>
    <div class="row"><label>Reader (a pseudonym) <input id="reader" maxlength="80" value=${reader} disabled=${state !== "off"} onInput=${(e) => setReader(e.target.value)}/></label>
      <label>Task <input id="task" size="28" maxlength="500" placeholder="find all positive lymph nodes" value=${task} disabled=${state !== "off"} onInput=${(e) => setTask(e.target.value)}/></label></div>
    <div class="row"><label><input type="checkbox" id="consent" checked=${consent} onChange=${(e) => { setConsent(e.target.checked); if (!e.target.checked && state !== "off") end(); }}/> I agree to be recorded</label>
      <button type="button" id="record" class=${state === "off" ? "first" : ""} ...${only("review", !consent || !reader.trim())} onClick=${() => state === "on" ? setState("paused") : begin()}>${state === "on" ? "Pause" : state === "paused" ? "Go on" : "Record session"}</button>
      ${state === "off" ? null : html`<button type="button" id="end" onClick=${end}>End session</button>`}
      <span role="status" class=${state === "on" ? "pill bad busy" : "pill"}>${state === "on" ? html`<span class="dot">●</span> recording ${told.seconds.toFixed(0)} s, ${count(told.events)} views${told.waiting > 60 ? `, ${told.waiting} not kept yet` : ""}` : state}</span></div>
    <${Wrong} error=${wrong}/>
    ${own?.length ? html`<ul class="small">${own.map((item) => html`<li data-session=${item.name}>${item.started.slice(0, 16).replace("T", " ")}, ${item.reader}${item.task ? `: ${item.task}` : ""}
      <button type="button" class="plain" data-do="replay" disabled=${state !== "off"} aria-pressed=${played === item.name} onClick=${() => setPlayed(played === item.name ? "" : item.name)}>${played === item.name ? "hide" : "replay"}</button>
      <button type="button" class="plain" data-do="delete" ...${only("review")} onClick=${() => drop(item.name)}>delete</button></li>`)}</ul>` : null}
    ${played && state === "off" ? html`<${Session} key=${played} name=${played} goTo=${goTo} goHome=${goHome} show=${show}/>` : null}</section>`;
}

// One recorder, beside the first of two slides.
export default (props) => props.first ? html`<${Recorder} ...${props}/>` : null;
