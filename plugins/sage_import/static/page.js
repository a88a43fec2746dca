// Files made into a cohort: every guess with its evidence, correctable, nothing written before.
import { html, api, only, send, useRef, useState, Wrong } from "/static/lib.js";

const ENDS = ".csv,.tsv,.txt,.tab,.gz,.xlsx,.xlsm,.json,.zip,.gct,.parquet,.feather,.arrow,.dta,.xpt,.sas7bdat,.sav,.zsav";
const KINDS = ["continuous", "binary", "categorical", "ordinal", "skip"];
const SURE = { sure: "good", likely: "", given: "good", unsure: "warn" };
const SHARE = (part) => `${Math.round(100 * part)}%`;
const key = (setting) => setting.slice(0, setting.indexOf("="));

function Answer({ guess, say, id, examples = {} }) {
  const [text, setText] = useState(guess.value);
  if (!guess.settable) return html`<strong>${guess.value}</strong>`;
  if (guess.choices.length) return html`<select id=${id} aria-label=${guess.what} value=${guess.open ? "" : guess.value} onChange=${(e) => e.target.value && say(`${guess.key}=${e.target.value}`)}>
    ${guess.open ? html`<option value="">choose</option>` : null}
    ${[...new Set([...(guess.open ? [] : [guess.value]), ...guess.choices])].map((choice) => html`<option value=${choice}>${choice}${examples[choice] ? ` (${examples[choice]})` : ""}</option>`)}</select>`;
  return html`<form class="row" onSubmit=${(e) => { e.preventDefault(); if (text) say(`${guess.key}=${text}`); }}>
    <input id=${id} aria-label=${guess.what} value=${text} onInput=${(e) => setText(e.target.value)}/>
    ${text !== guess.value || guess.open ? html`<button type="submit">Set</button>` : null}</form>`;
}

// Keeps what is being typed when an earlier answer arrives meanwhile.
function Typed({ id, value, say }) {
  const [text, setText] = useState(value);
  return html`<input id=${id} value=${text} onInput=${(e) => setText(e.target.value)} onChange=${(e) => e.target.value && say(`${id}=${e.target.value}`)}/>`;
}

function Questions({ questions, examples, say }) {
  const open = questions.filter((guess) => guess.open).length;
  return html`<article class="panel" id="questions" aria-label="Questions"><h2>${open ? (open === 1 ? "One question first" : `${open} questions first`) : "Please check"}</h2>
    ${open ? html`<p class="small">Your files do not answer this, and a wrong guess would reverse the results.</p>` : null}
    ${questions.map((guess) => html`<div class=${guess.open ? "said warn" : "said"} key=${guess.key}><strong>${guess.what}</strong> <${Answer} guess=${guess} say=${say} id=${`open-${guess.key}`} examples=${examples}/>
      <p class="small">${guess.evidence}</p></div>`)}</article>`;
}

function LeftOut({ losses }) {
  if (!losses.length) return null;
  return html`<h2>Not read</h2><div class="scroll" tabindex="0" role="region" aria-label="Not read"><table id="not-read"><thead><tr><th>What</th><th>How many</th><th>Why</th><th>Remedy</th></tr></thead><tbody>
    ${losses.map((loss) => html`<tr key=${loss.what + loss.reason}><td>${loss.what}</td><td class="n">${loss.count}</td><td class="small">${loss.reason}</td><td class="small">${loss.remedy}</td></tr>`)}</tbody></table></div>`;
}

function Guesses({ guesses, say }) {
  return html`<h2>How SAGE reads your files</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Guesses"><table id="guesses"><thead><tr><th>What</th><th>Read as</th><th>How sure</th><th>Evidence</th></tr></thead><tbody>
      ${guesses.map((guess, at) => html`<tr key=${`${guess.key}${guess.what}${guess.value}`}><td>${guess.what}</td><td><${Answer} guess=${guess} say=${say} id=${`guess-${at}`}/></td>
        <td><span class=${`pill ${guess.open ? "bad" : SURE[guess.confidence]}`}>${guess.open ? "open" : guess.confidence}</span></td><td class="small">${guess.evidence}</td></tr>`)}</tbody></table></div>`;
}

function Columns({ columns, say }) {
  const roles = { outcome: "Outcomes", variable: "Variables", "left out": "Left out" };
  return Object.entries(roles).map(([role, title]) => {
    const rows = columns.filter((column) => column.role === role);
    if (!rows.length) return null;
    return html`<h2>${title} <span class="soft small">${rows.length} columns</span></h2>
      <div class="scroll" tabindex="0" role="region" aria-label=${title}><table id=${`columns-${role.replace(" ", "-")}`}><thead><tr><th>Column</th><th>Kind</th><th>Measured</th><th>Missing</th><th>Values</th><th>Why</th></tr></thead><tbody>
      ${rows.map((column) => html`<tr key=${column.table + column.column}><td>${column.column}</td>
        <td>${role === "outcome" ? column.kind : html`<select aria-label=${`kind of ${column.column}`} value=${role === "variable" ? column.kind : "skip"} onChange=${(e) => say(`${column.column}.kind=${e.target.value}`)}>${KINDS.map((kind) => html`<option value=${kind}>${kind === "skip" ? "leave out" : kind}</option>`)}</select>`}</td>
        <td>${role === "variable" ? html`<select aria-label=${`when ${column.column} was known`} value=${column.known_at} onChange=${(e) => say(`${column.column}.known_at=${e.target.value}`)}><option>baseline</option><option>unknown</option></select>` : "–"}</td>
        <td class="n">${SHARE(column.missing)}${Object.keys(column.codes).length ? html`<br/><span class="tiny soft">${Object.entries(column.codes).map(([code, n]) => `${code}: ${n}`).join(", ")}</span>` : null}</td>
        <td class="small soft">${Object.entries(column.levels).map(([level, n]) => `${level}: ${n}`).join(", ")}</td>
        <td class="small">${column.warning ? html`<span class="said warn">${column.warning}</span>` : column.evidence}${column.remedy ? html`<br/><span class="tiny soft">${column.remedy}</span>` : null}</td></tr>`)}</tbody></table></div>`;
  });
}

function Written({ done }) {
  const bad = done.findings.filter((item) => item.severity !== "info");
  return html`<article class="panel" id="written"><h2>Cohort saved</h2><p>In <code>${done.folder}</code>: <code>cohort.toml</code> and the columns in use.</p>
    <p>${bad.length ? `${bad.length} ${bad.length === 1 ? "problem" : "problems"} could mislead an analysis; the cohort's page says what to do.` : "No problem was found that could mislead an analysis."}</p>
    <p><a class="button" href=${`/cohorts?cohort=${encodeURIComponent(done.cohort)}`} data-plain>Show the cohort</a></p></article>`;
}

export default function Import() {
  const [held, setHeld] = useState(null);
  const [settings, setSettings] = useState([]);
  const [found, setFound] = useState(null);
  const [done, setDone] = useState(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState("");
  const [more, setMore] = useState("");
  const [replace, setReplace] = useState(false);
  const order = useRef(0);
  const taken = useRef([]);
  const look = async (upload, asked) => {
    const turn = ++order.current;
    setBusy("Reading …"); setSettings(asked);
    try {
      const read = await api("/api/import/look", { body: { upload, settings: asked } });
      if (turn === order.current) { setFound(read); setError(""); taken.current = asked; }
    } catch (e) { if (turn === order.current) { setError(e.message); setSettings(taken.current); } }
    if (turn === order.current) setBusy("");
  };
  const say = (setting) => look(held.upload, [...settings.filter((old) => key(old) !== key(setting)), setting]);
  const choose = async (files) => {
    setError(""); setDone(null); setFound(null); taken.current = [];
    try {
      let got = { upload: "" };
      for (const file of files) {
        setBusy(`Sending ${file.name} …`);
        got = await send(`/api/import/files?name=${encodeURIComponent(file.name)}&to=${got.upload}`, file);
      }
      setHeld(got);
      await look(got.upload, []);
    } catch (e) { setError(e.message); setBusy(""); }
  };
  const write = async () => {
    setBusy("Writing …");
    try {
      setDone(await api("/api/import/write", { body: { upload: held.upload, settings, replace } }));
      setFound(null); setError("");
    } catch (e) { setError(e.message); }
    setBusy("");
  };
  const drop = (event) => { event.preventDefault(); if (event.dataTransfer.files.length) choose([...event.dataTransfer.files]); };
  return html`<h1>Import your own data</h1>
    <div class="panel" onDragOver=${(e) => e.preventDefault()} onDrop=${drop}>
      <p><label>Tables, a workbook, or a study folder as .zip: <input id="files" type="file" multiple accept=${ENDS} onChange=${(e) => e.target.files.length && choose([...e.target.files])}/></label></p>
      <p class="small soft">CSV, TSV, Excel, Parquet, Stata, SAS and SPSS tables, cBioPortal, GDC, Firehose and GEO. They go to this server and nowhere else, and are removed once the cohort is written.</p></div>
    <p role="status" class="small soft">${busy}</p>
    <${Wrong} error=${error}/>
    ${done ? html`<${Written} done=${done}/>` : null}
    ${found ? html`
      <${Questions} questions=${found.questions} examples=${found.examples} say=${say}/>
      <article class="panel"><div class="row">
        <label>Name <${Typed} key=${found.name} id="name" value=${found.name} say=${say}/></label>
        <label>Title <${Typed} key=${found.title} id="title" value=${found.title} say=${say}/></label></div>
        <p><label><input id="baseline" type="checkbox" checked=${settings.includes("known_at=baseline")} onChange=${(e) => e.target.checked ? say("known_at=baseline") : look(held.upload, settings.filter((old) => key(old) !== "known_at"))}/> All variables were measured before follow-up began</label></p>
        <form class="row" onSubmit=${(e) => { e.preventDefault(); if (more.includes("=")) { say(more); setMore(""); } }}>
          <label>Another correction <input id="more" placeholder="missing=9999,unk" value=${more} onInput=${(e) => setMore(e.target.value)}/></label><button type="submit">Set</button></form>
        ${settings.length ? html`<p class="small">Set by you: ${settings.map((setting) => html`<button type="button" class="plain" aria-label=${`take back ${setting}`} onClick=${() => look(held.upload, settings.filter((old) => old !== setting))}>${setting} ×</button> `)}</p>` : null}
        <p><label><input id="replace" type="checkbox" checked=${replace} onChange=${(e) => setReplace(e.target.checked)}/> Replace an imported cohort of the same name</label></p>
        <button class="first" id="write" ...${only("administer", Boolean(busy) || found.open.length > 0)} onClick=${write}>Save the cohort</button>
        ${found.open.length ? html` <span class="small soft">Answer the ${found.open.length === 1 ? "question" : "questions"} above first.</span>` : null}
      </article>
      <${LeftOut} losses=${found.left_out}/>
      <${Columns} columns=${found.columns} say=${say}/>
      <${Guesses} guesses=${found.guesses} say=${say}/>` : null}`;
}
