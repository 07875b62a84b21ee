// The page's start: which view is shown, the server's state, the API key, the colours.

import { announce, byId, setAttr, setText } from "./lib/dom.js";
import { ApiError, getJson, key, urlOf, whenUnauthorized } from "./lib/api.js";
import { Playground } from "./playground/playground.js";
import { Dashboard } from "./dashboard/dashboard.js";
import { RecordDialog } from "./dashboard/record_dialog.js";

const RETRY_MS = 2000;
const VIEWS = ["playground", "dashboard"];

const records = new RecordDialog();
const playground = new Playground({ openRecord: (id) => records.open(id) });
const dashboard = new Dashboard({ openRecord: (id) => records.open(id), onUnreachable: () => connect() });

// Views

function showView() {
  const name = VIEWS.find((view) => `#${view}` === location.hash) ?? VIEWS[0];
  for (const view of VIEWS) {
    byId(view).hidden = view !== name;
    setAttr(byId(`to-${view}`), "aria-current", view === name ? "page" : null);
  }
  document.title = `${name === "dashboard" ? "Dashboard" : "Playground"} – roseinfer`;
  dashboard.show(name === "dashboard");
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  byId("main").focus();
});
window.addEventListener("hashchange", () => {
  showView();
  byId("main").focus({ preventScroll: true });
});

// The server's state

let retry = 0;

async function connect() {
  window.clearTimeout(retry);
  try {
    const { data } = await getJson("v1/models");
    showState("ok", data[0].id);
    playground.setModels(data.map(({ id }) => id));
    dashboard.refresh();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      showState("wait", "An API key is needed");
      return;
    }
    const isLoading = error instanceof ApiError && error.status === 503;
    showState(isLoading ? "wait" : "down", isLoading ? await stateOf() : "Not reachable");
    retry = window.setTimeout(connect, RETRY_MS);
  }
}

async function stateOf() {
  try {
    const { status } = await (await fetch(urlOf("health"), { cache: "no-store" })).json();
    return status === "loading" ? "Loading the model" : `The server is ${status}`;
  } catch {
    return "Not reachable";
  }
}

function showState(kind, text) {
  byId("server-dot").className = `dot ${kind}`;
  setText(byId("server-state"), text);
}

// The API key

const keyDialog = byId("key-dialog");

function askForKey(problem) {
  byId("key-problem").textContent = problem;
  byId("key").value = "";
  setAttr(byId("key"), "aria-invalid", problem ? "true" : null);
  byId("key-forget").hidden = !key.get();
  if (!keyDialog.open) keyDialog.showModal();
  byId("key").focus();
}

function useKey(text) {
  key.set(text);
  keyDialog.close();
  connect();
}

whenUnauthorized((hasKey) => {
  showState("wait", "An API key is needed");
  if (!keyDialog.open) askForKey(hasKey ? "The server does not accept this key." : "");
});
byId("open-key").addEventListener("click", () => askForKey(""));
byId("key-cancel").addEventListener("click", () => keyDialog.close());
byId("key-forget").addEventListener("click", () => useKey(""));
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("key").value.trim();
  if (text) useKey(text);
  else askForKey("Type a key.");
});

// Colours

const THEMES = ["system", "light", "dark"];

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "system";
  setText(byId("theme"), `Theme: ${theme}`);
  return theme;
}

byId("theme").addEventListener("click", () => {
  const theme = THEMES[(THEMES.indexOf(showTheme()) + 1) % THEMES.length];
  if (theme === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("roseinfer.theme");
  } else {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("roseinfer.theme", theme);
  }
  showTheme();
  announce(`Theme: ${theme}`);
});

showTheme();
showView();
connect();
