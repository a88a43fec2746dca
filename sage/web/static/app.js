// Which page an address shows.
import { html, render, here, Plugin, useEffect, useRef, useState } from "./lib.js";
import { Home } from "./home.js";
import { Run } from "./run.js";
import { Review } from "./review.js";
import { Compare } from "./compare.js";
import { Slides } from "./slides.js";
import { Graph } from "./graph.js";
import { Cohorts } from "./cohorts.js";

const ROUTES = [
  [/^\/$/, "Home", () => Home],
  [/^\/runs\/([^/]+)$/, "Run", () => Run],
  [/^\/review$/, "Review", () => Review],
  [/^\/compare$/, "Compare", () => Compare],
  [/^\/slides$/, "Slides", () => Slides],
  [/^\/graph$/, "Graph", () => Graph],
  [/^\/cohorts$/, "Cohorts", () => Cohorts],
];
const LINKS = [["/", "Home"], ["/review", "Review"], ["/compare", "Compare"], ["/slides", "Slides"], ["/graph", "Graph"], ["/cohorts", "Cohorts"]];

export function go(path) {
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}

function App({ site }) {
  const [path, setPath] = useState(location.pathname + location.search);
  const main = useRef();
  useEffect(() => {
    const moved = () => { setPath(location.pathname + location.search); scrollTo(0, 0); main.current?.focus(); };
    const click = (event) => {
      const link = event.target.closest?.("a[href^='/']");
      if (!link || link.target || link.hasAttribute("data-plain") || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      go(link.getAttribute("href"));
    };
    addEventListener("popstate", moved);
    document.addEventListener("click", click);
    return () => { removeEventListener("popstate", moved); document.removeEventListener("click", click); };
  }, []);
  const plain = path.split("?")[0];
  const added = site.pages.find((own) => own.path === plain);
  const [pattern, title, page] = ROUTES.find(([p]) => p.test(plain)) || [null, added?.title || "Not found", added && (() => Plugin)];
  useEffect(() => { document.title = `${title} · SAGE`; }, [title]);
  const Page = page && page();
  const name = pattern && plain.match(pattern)[1] ? decodeURIComponent(plain.match(pattern)[1]) : "";
  return html`
    <a class="skip" href="#main" data-plain>To the content</a>
    <header class="bar no-print"><nav class="row" aria-label="Pages">
      <a class="mark" href="/"><img src="/static/mark.svg" alt="" width="22" height="22"/>SAGE</a>
      ${[...LINKS, ...site.pages.map((own) => [own.path, own.title])].map(([to, words]) => html`<a href=${to} aria-current=${plain === to ? "page" : null}>${words}</a>`)}
    </nav><span class="far">${site.user_fixed ? `${site.user} (${site.roles.join(", ")}) · ` : ""}${site.reasoner === "rules" ? "no language model" : "language model"} · ${site.version}</span></header>
    <main id="main" tabindex="-1" ref=${main}>${Page
      ? html`<${Page} key=${path} script=${added?.script} site=${site} name=${name} go=${go} query=${new URLSearchParams(location.search)}/>`
      : html`<h1>Page not found</h1>`}</main>`;
}

const root = document.getElementById("app");
here().then(
  (site) => render(html`<${App} site=${site}/>`, root),
  (error) => { root.textContent = `The server cannot be reached: ${error.message}`; },
);
