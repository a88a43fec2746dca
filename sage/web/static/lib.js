// What every page uses: markup, the server, small parts.
import { h, render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import htm from "htm";

export const html = htm.bind(h);
export { render, useEffect, useLayoutEffect, useRef, useState };

let csrf = "";
let held = null;
export async function here() {
  const found = await api("/api/here");
  csrf = found.csrf;
  held = found.user_fixed ? found.roles : null;
  return found;
}

// What a button gets that only some may press: it says why it does nothing.
export const only = (role, off = false) => !held || held.includes(role) || held.includes("administer")
  ? { disabled: off } : { disabled: true, title: `this needs the role “${role}”; you have: ${held.join(", ")}` };

async function answered(reply) {
  const found = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(found.error || `the server answered ${reply.status}`);
  return found;
}

export async function send(path, file) {
  return answered(await fetch(path, { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream", "X-CSRF-Token": csrf } }));
}

export async function api(path, { body, signal, keepalive } = {}) {
  const asked = body === undefined
    ? { signal }
    : { method: "POST", signal, keepalive, body: JSON.stringify(body),
        headers: { "Content-Type": "application/json", "X-CSRF-Token": csrf } };
  return answered(await fetch(path, asked));
}

export function useLoaded(path, key = path) {
  const [state, set] = useState({ data: null, error: "" });
  const load = () => api(path).then((data) => set({ data, error: "" }), (e) => set({ data: null, error: e.message }));
  useEffect(() => { load(); }, [key]);
  return { ...state, load };
}

// A part of a plugin: the default export of its script, with whatever else is given.
export function Plugin({ script, ...given }) {
  const [part, setPart] = useState({});
  useEffect(() => { import(script).then((found) => setPart({ show: found.default }), (e) => setPart({ error: e.message })); }, [script]);
  return part.show ? html`<${part.show} ...${given}/>` : html`<${Wrong} error=${part.error}/>`;
}

export const address = (name) => encodeURIComponent(name);
export const seconds = (s) => s == null ? "not known yet" : s < 90 ? `${s.toFixed(s < 10 ? 1 : 0)} s` : `${Math.round(s / 60)} min`;
export const usd = (v) => v == null ? "no price set" : `${v.toFixed(v && v < 0.1 ? 4 : 2)} USD`;
export const count = (v) => Number(v || 0).toLocaleString("en-US");
export const number = (v) => v == null ? "–" : Math.abs(v) >= 1000 ? count(Math.round(v)) : String(Number(v.toPrecision(3)));

const KINDS = {
  finished: "good", "waiting for review": "warn", escalated: "warn", failed: "bad",
  interrupted: "warn", stopped: "warn", paused: "warn", pausing: "busy", running: "busy", starting: "busy",
};
const WORDS = { escalated: "needs you" };
export const Pill = ({ state }) => html`<span class=${`pill ${KINDS[state] || ""}`}>${WORDS[state] || state}</span>`;
const VERDICTS = { supported: "good", small_effect: "warn", not_supported: "warn" };
export const Verdict = ({ of }) => html`<span class=${`pill ${VERDICTS[of.verdict] || ""}`}>${of.verdict_words}</span>`;
export const curveOf = (run, claim) => `/api/runs/${address(run)}/curve/${address(claim.id)}`;
export const Wrong = ({ error }) => error ? html`<p class="said bad" role="alert">${error}</p>` : null;

export function Source({ of, against }) {
  const link = of.doi ? `https://doi.org/${of.doi}` : of.pmid ? `https://pubmed.ncbi.nlm.nih.gov/${of.pmid}/` : "";
  const safe = /^https:\/\/(doi\.org\/10\.|pubmed\.ncbi\.nlm\.nih\.gov\/\d+\/$)/.test(link);
  const where = of.doi ? `doi:${of.doi}` : of.pmid ? `PMID ${of.pmid}` : "no identifier";
  return html`<blockquote class=${against ? "against" : ""}>
    ${against ? html`<strong>Against: </strong>` : null}${of.quote ? `“${of.quote}” ` : null}
    <span class="soft">${of.title}${of.year ? `, ${of.year}` : ""}. </span>
    ${safe ? html`<a href=${link} target="_blank" rel="noopener noreferrer">${where}</a>` : html`<span class="soft">${where}</span>`}
    ${of.retracted ? html` <strong>RETRACTED</strong>` : null}
  </blockquote>`;
}
