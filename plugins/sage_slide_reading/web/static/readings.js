// A slide that is read: the question, the path of the reader, and how a person steps in.
import { html, api, number, Pill, useEffect, useLayoutEffect, useLoaded, useRef, useState, Wrong } from "/static/lib.js";
import { boxOf } from "/static/regions.js";
import { drawPath, Player, usePlayer } from "./path.js";

const ROOT = "/api/slides/readings";
const BUSY = ["starting", "running", "waiting"];
const LEVELS = [10, 20, 40];
const STAGES = { selected: "before the first look", described: "after the descriptions", missing: "before the next look" };

function kindOf(visit, reading, first) {
  if (reading.final?.rests_on.includes(visit.seen.region.id)) return "answer";
  return visit.seen.region.magnification > first ? "inspected" : "overview";
}

// What followed a step: the last region of the step tells it.
function then(step, final) {
  const said = ({ answer, thinking_steps: why }) => `${answer ?? "none"}. ${why}`;
  return [
    step.predicted && `answer so far: ${said(step.predicted)}`,
    step.reflected && `sufficient: ${step.reflected.sufficient}. ${step.reflected.reason}`,
    step.missing && `missing: ${[...new Set(step.missing.items.map((item) => item.missing_info))].join("; ")}`,
    ...step.interventions.map((words) => `a person: ${words}`),
    step.why_next,
    final && `answer from everything that was seen: ${said({ answer: final.answer, thinking_steps: final.reasoning })}`,
  ].filter(Boolean);
}

const visitsOf = ({ steps, final }) => steps.flatMap((step, n) => step.seen.map((seen, place) => ({
  round: step.round, looked_for: step.looked_for, relevance: step.relevance[place], seen,
  then: place + 1 < step.seen.length ? ["the next region chosen for this round"] : then(step, n + 1 === steps.length && final),
})));

function Ask({ slide, person, name, started }) {
  const [question, setQuestion] = useState("");
  const [answers, setAnswers] = useState("");
  const [pause, setPause] = useState(false);
  const [wrong, setWrong] = useState("");
  const begin = (event) => {
    event.preventDefault(); setWrong("");
    const options = answers.split("\n").map((line) => line.trim()).filter(Boolean);
    api(ROOT, { body: { slide: slide.path, person, question: question.trim(), answers: options, pause } }).then((found) => started(found.reading), (e) => setWrong(e.message));
  };
  return html`<form id="ask-slide" onSubmit=${begin}>
    <label class="stack">Question <input id="slide-question" maxlength="1000" required minlength="3" placeholder="Where is the tumor?" value=${question} onInput=${(e) => setQuestion(e.target.value)}/></label>
    <label class="stack">Possible answers, one a line; none for an open question <textarea id="slide-answers" rows="3" value=${answers} onInput=${(e) => setAnswers(e.target.value)}/></label>
    ${name}
    <label><input type="checkbox" id="slide-pause" checked=${pause} onChange=${(e) => setPause(e.target.checked)}/> stop at every step for what I change</label>
    <button class="first" id="read-slide" disabled=${!person.trim() || question.trim().length < 3}>Read</button><${Wrong} error=${wrong}/></form>`;
}

function StepIn({ reading, person, visit, frame, held, slide, say }) {
  const [missing, setMissing] = useState("");
  const [level, setLevel] = useState("20");
  const [words, setWords] = useState("");
  const id = visit?.seen.region.id;
  useLayoutEffect(() => { setWords(visit ? visit.seen.text : ""); }, [id]);
  const look = (box) => {
    const left = Math.max(0, Math.round(box.x)), top = Math.max(0, Math.round(box.y));
    const right = Math.min(slide.width, Math.round(box.right)), bottom = Math.min(slide.height, Math.round(box.bottom));
    if (right > left && bottom > top) say({ region: { x: left, y: top, width: right - left, height: bottom - top } });
  };
  const screen = () => { const { x, y, width, height } = frame.current; look({ x: x - width / 2, y: y - height / 2, right: x + width / 2, bottom: y + height / 2 }); };
  const drawn = held.regions[held.chosen];
  const off = !person.trim();
  return html`<div class="stepin" id="step-in" role="group" aria-label="Step in">
    <p class="small">${reading.state === "waiting" ? html`<strong>It waits for you</strong>, round ${reading.now.round}, ${STAGES[reading.now.stage] || ""}.` : "What you change is taken at its next step."}</p>
    <div class="row"><button type="button" id="look-screen" disabled=${off} onClick=${screen}>Look at what is on the screen</button>
      ${drawn ? html`<button type="button" id="look-region" disabled=${off} onClick=${() => look(boxOf(drawn.corners))}>Look at ${drawn.label || `region ${held.chosen + 1}`}</button>` : html`<span class="tiny soft">or draw a region under Regions, and choose it</span>`}</div>
    <div class="row"><label>Look closer, at <select id="closer" value=${level} onChange=${(e) => setLevel(e.target.value)}>${LEVELS.map((k) => html`<option value=${k}>${k}x</option>`)}</select></label><button type="button" id="look-closer" disabled=${off} onClick=${() => say({ magnification: Number(level) })}>Closer</button></div>
    <div class="row"><label class="stack grow">Look for <input id="missing-info" maxlength="500" value=${missing} onInput=${(e) => setMissing(e.target.value)}/></label><button type="button" id="say-missing" disabled=${off || !missing.trim()} onClick=${() => { say({ missing_info: missing.trim() }); setMissing(""); }}>Say</button></div>
    ${visit ? html`<label class="stack">In your words, ${id} shows <textarea id="edit-words" rows="3" maxlength="2000" value=${words} onInput=${(e) => setWords(e.target.value)}/></label>
      <button type="button" id="edit-say" disabled=${off || !words.trim() || words.trim() === visit.seen.text} onClick=${() => say({ edit: [id, words.trim()] })}>Put it in place of what was seen</button>` : null}
  </div>`;
}

function Seen({ visit, n, count, goTo }) {
  const { region, text, findings, edited } = visit.seen, { box } = region;
  return html`<div class="visit" id="visit" data-region=${region.id}>
    <p class="small"><strong>${n + 1} of ${count}</strong> · round ${visit.round} · ${number(region.magnification)}x · ${region.id} <button type="button" class="plain" onClick=${() => goTo({ x: box.x + box.width / 2, y: box.y + box.height / 2, width: 1.6 * Math.max(box.width, box.height) })}>show</button>
      <br/><span class="soft">looking for ${visit.looked_for}${visit.relevance == null ? "" : `; relevance ${number(visit.relevance)}`}</span></p>
    <p class="small" id="seen-words">${text}${edited ? html` <span class="pill warn">edited by a person</span>` : null}</p>
    ${findings.length ? html`<details><summary class="small">${findings.length} measured</summary><table class="small"><tbody>${findings.map((f) => html`<tr><td>${f.name.replaceAll("_", " ")}</td><td class="n">${number(f.value)} ${f.unit}</td></tr>`)}</tbody></table></details>` : null}
    <ul class="small" id="why-next" aria-label="Why next">${visit.then.map((words) => html`<li>${words}</li>`)}</ul></div>`;
}

// One reading: followed while it works, played when it is over.
function Reading({ slide, name, person, site, frame, held, goTo, show, close }) {
  const [reading, setReading] = useState(null);
  const [wrong, setWrong] = useState("");
  const [follow, setFollow] = useState(true);
  const [told, setTold] = useState("");
  const player = usePlayer(reading?.visits.length || 0);
  const busy = reading && BUSY.includes(reading.state), was = useRef(false);
  const load = () => api(`${ROOT}/one?${new URLSearchParams({ path: slide.path, reading: name })}`).then((found) => { setReading({ ...found, visits: visitsOf(found) }); return found; }, (e) => { setWrong(e.message); });
  useEffect(() => {
    let live = true, timer = 0;
    const again = async () => { const found = await load(); if (live && found && BUSY.includes(found.state)) timer = setTimeout(again, 700); };
    again();
    return () => { live = false; clearTimeout(timer); show(null); };
  }, [name]);
  // While it works the newest look is shown; a reading that is over begins at its first.
  useEffect(() => {
    if (!reading) return;
    if (busy) player.to(reading.visits.length - 1);
    else if (player.at < 0 && reading.visits.length) player.to(was.current ? reading.visits.length - 1 : 0);
    was.current = busy;
  }, [reading?.visits.length, busy]);
  const visit = reading?.visits[player.at];
  useEffect(() => {
    if (!reading) return;
    const first = Math.min(...reading.visits.map((v) => v.seen.region.magnification));
    const places = reading.visits.map((v) => ({ ...v.seen.region.box, kind: kindOf(v, reading, first) }));
    const way = { places, at: player.at, now: reading.now?.looking_at?.box || null };
    show((ctx, seen) => drawPath(ctx, way, seen));
  }, [reading, player.at]);
  const box = (busy && reading.now?.looking_at?.box) || visit?.seen.region.box;
  const key = box && `${box.x},${box.y},${box.width}`;
  useEffect(() => { if (follow && box) goTo({ x: box.x + box.width / 2, y: box.y + box.height / 2, width: 4 * Math.max(box.width, box.height) }); }, [key, follow]);
  const say = (word) => api(`${ROOT}/say`, { body: { reading: name, person, ...word } }).then(() => { setWrong(""); setTold(word.go || word.pause != null ? "" : "Said. It is taken at the next step."); load(); }, (e) => { setTold(""); setWrong(e.message); });
  const stop = () => api(`${ROOT}/stop`, { body: { reading: name } }).then(load, (e) => setWrong(e.message));
  if (!reading) return html`<${Wrong} error=${wrong}/>`;
  const may = (role) => !site.user_fixed || site.roles.includes(role) || site.roles.includes("administer");
  return html`<div id="reading" data-state=${reading.state} data-visits=${reading.visits.length}>
    <p><strong>${reading.question || "a reading"}</strong> <${Pill} state=${reading.state === "waiting" ? "waiting for you" : reading.state}/>${reading.by ? html` <span class="soft small">asked by ${reading.by}</span>` : null}</p>
    ${reading.answers.length ? html`<p class="small soft">${reading.answers.join(" · ")}</p>` : null}
    <${Wrong} error=${wrong || reading.problem}/>
    ${reading.now?.refused.map((words) => html`<p class="said warn small">Not taken: ${words}</p>`)}
    ${busy && reading.own ? html`<div class="row">
      ${reading.now ? reading.now.pause ? html`<button type="button" id="go-step" class="first" onClick=${() => say({ go: true })}>Next step</button><button type="button" id="go-on" onClick=${() => say({ pause: false, go: true })}>Go on to the end</button>` : html`<button type="button" id="pause-reading" onClick=${() => say({ pause: true })}>Stop at the next step</button>` : null}
      <button type="button" id="stop-reading" onClick=${stop}>End it</button></div>` : null}
    ${reading.visits.length ? html`<${Player} player=${player} name="Path of the reading"/>
      <label class="small"><input type="checkbox" id="follow" checked=${follow} onChange=${(e) => setFollow(e.target.checked)}/> the view follows</label>` : html`<p class="small soft" role="status">${busy ? "It has not looked at anything yet." : "Nothing was looked at."}</p>`}
    ${visit ? html`<${Seen} visit=${visit} n=${player.at} count=${reading.visits.length} goTo=${goTo}/>` : null}
    ${busy && reading.own && may("review") ? html`<${StepIn} reading=${reading} person=${person} visit=${visit} frame=${frame} held=${held} slide=${slide} say=${say}/><p class="small" role="status">${told}</p>` : null}
    ${reading.state === "finished" ? html`<div class="said" id="answer"><p><strong>${reading.final.answer ?? "No answer: it abstains"}</strong></p><p class="small">${reading.final.reasoning}</p>
      <p class="tiny soft">${reading.final.read.regions} regions described; ${Math.round(100 * reading.final.read.overview_share)}% of the tissue read at low power, ${(100 * reading.final.read.high_power_share).toFixed(1)}% at high power.</p><p class="tiny soft">${reading.final.statement}</p></div>` : null}
    <button type="button" class="plain" id="close-reading" onClick=${close}>close</button></div>`;
}

export default function Readings({ slide, site, frame, held, goTo, show }) {
  const { data, error, load } = useLoaded(`${ROOT}?${new URLSearchParams({ path: slide.path })}`);
  const [chosen, setChosen] = useState("");
  const [person, setPerson] = useState(site.user_fixed ? site.user : localStorage.getItem("reviewer") || "");
  const keep = (name) => { setPerson(name); localStorage.setItem("reviewer", name); };
  const name = site.user_fixed ? html`<p class="small">as ${site.user}</p>` : html`<label class="stack">Your name <input id="asked-by" value=${person} onInput=${(e) => keep(e.target.value)}/></label>`;
  const close = () => { setChosen(""); load(); };
  return html`<section class="panel" id="readings" aria-label="Readings"><h3>Have it read</h3>
    <p class="tiny soft">SAGE moves through the slide and answers from what it sees. Measurements and rules, no pathologist; no diagnosis.</p><${Wrong} error=${error}/>
    ${chosen ? html`<${Reading} key=${chosen} name=${chosen} slide=${slide} person=${person} site=${site} frame=${frame} held=${held} goTo=${goTo} show=${show} close=${close}/>`
      : html`<${Ask} slide=${slide} person=${person} name=${name} started=${setChosen}/>
      <ul class="small">${data?.map((item) => html`<li data-reading=${item.reading}><button type="button" class="plain" onClick=${() => setChosen(item.reading)}>${item.question || item.reading.split("/").slice(-2).join("/")}</button> <span class="soft">${[item.by, item.at.slice(0, 16).replace("T", " "), item.state].filter(Boolean).join(", ")}</span></li>`)}</ul>`}
  </section>`;
}
