// Sessions that were drafted, and their review: pictures of a region, three panels, one decision each.
import { html, api, count, only, useEffect, useLayoutEffect, useLoaded, useRef, useState, Wrong } from "/static/lib.js";

const PICTURES = [["thumbnail", "Slide"], ["region", "Region"], ["cytology", "Center at high power"]];
const STATES = { accepted: "good", revised: "good", rejected: "bad" };
const split = (text) => text.split(/(?<=[.!?])\s+(?=[A-Z0-9“"(])|\n+/).map((s) => s.trim()).filter(Boolean);
const secs = (v) => v == null ? "–" : `${v.toFixed(1)} s`;

function Sentences({ title, lines, set }) {
  const [text, setText] = useState(lines.join(" "));
  return html`<textarea rows="6" aria-label=${title} value=${text} onInput=${(e) => { setText(e.target.value); set(split(e.target.value)); }}/>`;
}

function Panel({ name, title, lines, editing, set, edit, changed, restore }) {
  return html`<section class="panel sentences" data-panel=${name} aria-label=${title}><h3>${title}</h3>
    ${editing ? html`<${Sentences} ...${{ title, lines, set }}/>`
      : lines.map((line, n) => html`<p key=${n + line}><span>${line}</span><button type="button" class="plain" data-delete=${n} aria-label=${`delete: ${line}`} onClick=${() => set(lines.toSpliced(n, 1))}>✕</button></p>`)}
    ${!editing && !lines.length ? html`<p class="soft small">Nothing is left.</p>` : null}
    <div class="row"><button type="button" data-edit=${name} onClick=${() => edit(editing ? "" : name)}>${editing ? "Done" : "Edit"}</button>
      ${changed ? html`<button type="button" class="plain" onClick=${restore}>as drafted</button>` : null}</div></section>`;
}

function Timing({ audit }) {
  return html`<section class="panel" id="timing" aria-label="Timing"><h3>What the review took</h3><table class="small"><thead><tr><th>Rounds</th><th class="n">Count</th><th class="n">Per round</th></tr></thead>
    <tbody>${Object.entries(audit).map(([state, [n, s]]) => html`<tr><td>${state}</td><td class="n">${count(n)}</td><td class="n">${secs(s)}</td></tr>`)}</tbody></table></section>`;
}

function Review({ name, site }) {
  const { data, error } = useLoaded(`/api/drafts/${encodeURIComponent(name)}`);
  const [at, setAt] = useState(-1);
  const [panels, setPanels] = useState({});
  const [editing, edit] = useState("");
  const [decided, setDecided] = useState({});
  const [audit, setAudit] = useState(null);
  const [person, setPerson] = useState(site.user_fixed ? site.user : localStorage.getItem("reviewer") || "");
  const [elapsed, setElapsed] = useState(0);
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const effort = useRef({ round: -1 });
  const own = () => { if (effort.current.round !== at) effort.current = { round: at, loaded: 0, since: 0 }; return effort.current; };
  const round = data?.rounds[at], scratch = data?.drafted_by === "none";
  // Before the page is shown, or a click that comes at once would be undone.
  useLayoutEffect(() => {
    if (!data) return;
    setDecided(Object.fromEntries(Object.entries(data.decisions).map(([n, made]) => [n, made.state])));
    setAudit(data.audit);
    const open = data.rounds.findIndex((_, n) => !data.decisions[n]);
    setAt(open < 0 ? 0 : open);
  }, [data]);
  useLayoutEffect(() => {
    if (!round) return;
    const kept = data.decisions[at];
    setPanels(kept && kept.state !== "rejected" ? kept.rationale : round.rationale);
    edit(scratch ? "all" : ""); setWrong("");
  }, [round]);
  useEffect(() => { const ticking = setInterval(() => setElapsed(effort.current.since ? (performance.now() - effort.current.since) / 1000 : 0), 500); return () => clearInterval(ticking); }, []);
  // Time counts from when the pictures are there.
  const loaded = () => { const now = own(); now.loaded += 1; if (now.loaded === PICTURES.length) now.since = performance.now(); };
  const decide = async (accept) => {
    const took = own(); setBusy(true);
    try {
      const body = { round: at, accept, rationale: panels, reviewer: person, seconds: took.since ? (performance.now() - took.since) / 1000 : null };
      const made = await api(`/api/drafts/${encodeURIComponent(name)}/decisions`, { body });
      localStorage.setItem("reviewer", person);
      data.decisions[at] = { state: made.state, rationale: panels };
      const now = { ...decided, [at]: made.state };
      setDecided(now); setAudit(made.audit); setWrong("");
      const order = data.rounds.map((_, n) => (at + 1 + n) % data.rounds.length), next = order.find((n) => !now[n]);
      if (next != null) setAt(next);
    } catch (e) { setWrong(e.message); }
    setBusy(false);
  };
  if (!data) return html`<${Wrong} error=${error}/>`;
  const done = Object.keys(decided).length, header = data.header;
  if (!round) return html`<p>No region was drafted.</p>`;
  const picture = (kind) => `/api/drafts/${encodeURIComponent(name)}/picture?${new URLSearchParams({ round: kind === "thumbnail" ? 0 : at, kind })}`;
  const box = { left: `${100 * round.action.x / header.width}%`, top: `${100 * round.action.y / header.height}%`, width: `${100 * round.action.w / header.width}%`, height: `${100 * round.action.h / header.height}%` };
  const state = decided[at] || "open";
  return html`<div class="review" data-round=${at} data-decided=${done}>
    <div class="row status"><strong>${header.slide}</strong><span>region ${at + 1} of ${data.rounds.length}: <code>${round.action.command}</code></span>
      <progress aria-label="regions decided" max=${data.rounds.length} value=${done}/><span>${done} decided</span><span class="n" data-elapsed>${elapsed.toFixed(0)} s</span>
      <span class=${`pill ${STATES[state] || ""}`} data-state=${state}>${state}</span></div>
    ${header.task ? html`<p class="small">Task: ${header.task}</p>` : null}
    <div class="pictures">${PICTURES.map(([kind, words]) => html`<figure key=${`${kind}${at}`}><div class="framed"><img src=${picture(kind)} alt=${`${words} of region ${at + 1}`} onLoad=${loaded} onError=${() => setWrong("a picture could not be loaded: is the slide below the folders of --root?")}/>
      ${kind === "thumbnail" ? html`<span class="box" style=${box}/>` : null}</div><figcaption class="small">${words}</figcaption></figure>`)}</div>
    <div class="grid">${Object.entries(data.panels).map(([key, title]) => html`<${Panel} key=${`${key}${at}`} name=${key} title=${title} lines=${panels[key] || []} editing=${editing === "all" || editing === key} edit=${edit}
      changed=${!scratch && JSON.stringify(panels[key]) !== JSON.stringify(round.rationale[key])} restore=${() => { edit(""); setPanels({ ...panels, [key]: round.rationale[key] }); }} set=${(lines) => setPanels((old) => ({ ...old, [key]: lines }))}/>`)}</div>
    <div class="row">${site.user_fixed ? html`<span class="small">as ${site.user}</span>` : html`<label>Your name <input id="reviewer" size="12" maxlength="80" value=${person} onInput=${(e) => setPerson(e.target.value)}/></label>`}
      <button type="button" id="accept" class="first" ...${only("review", busy || !person.trim())} onClick=${() => decide(true)}>Accept</button>
      <button type="button" id="reject" ...${only("review", busy || !person.trim())} onClick=${() => decide(false)}>Reject: no zoom needed</button>
      <button type="button" id="before" class="plain" disabled=${!at} onClick=${() => setAt(at - 1)}>region before</button>
      <button type="button" id="after" class="plain" disabled=${at + 1 >= data.rounds.length} onClick=${() => setAt(at + 1)}>region after</button></div>
    <${Wrong} error=${wrong}/>
    <p class="tiny soft">${data.statement}</p></div>
    ${done ? html`<${Timing} audit=${audit}/>` : null}`;
}

function List() {
  const sessions = useLoaded("/api/sessions"), drafts = useLoaded("/api/drafts"), slides = useLoaded("/api/slides");
  const slide = (name) => slides.data?.find((item) => item.name.split("/").at(-1) === name);
  return html`<${Wrong} error=${sessions.error || drafts.error}/>
    <h2>To review</h2>${drafts.data?.length ? html`<ul>${drafts.data.map((item) => html`<li><a href=${`/sessions?drafts=${encodeURIComponent(item.name)}`}>${item.slide}, ${item.reader}</a> <span class="soft small">${item.decided} of ${item.rounds} regions decided, drafts: ${item.drafted_by}${item.task ? `, “${item.task}”` : ""}</span></li>`)}</ul>`
      : html`<p>Nothing is drafted yet: <code>sage reading draft SESSION --slide SLIDE</code>.</p>`}
    <h2>Recorded</h2>${sessions.data?.length ? html`<ul>${sessions.data.map((item) => html`<li>${item.started.slice(0, 16).replace("T", " ")}: ${slide(item.slide) ? html`<a href=${`/slides?${new URLSearchParams({ path: slide(item.slide).path })}`}>${item.slide}</a>` : item.slide}, ${item.reader}${item.task ? `, “${item.task}”` : ""} <span class="soft tiny">${item.name}</span></li>`)}</ul>`
      : html`<p>Nothing is recorded yet: <em>Record session</em> lies beside each <a href="/slides">slide</a>.</p>`}`;
}

export default function Sessions({ query, site }) {
  const name = query.get("drafts");
  return html`<h1>${name ? "Review of a session" : "Sessions"}</h1>${name ? html`<p class="no-print"><a href="/sessions">All sessions</a></p><${Review} key=${name} name=${name} site=${site}/>` : html`<${List}/>`}`;
}
