// Shows one version's interface description at a time, by Swagger UI.
//
// The key that is typed in stays in this page's memory: it is gone when the page is left.

const VERSIONS = ["v1", "v2"];

const select = document.querySelector("#version");
const said = document.querySelector("#said");

// Where a page is asked for decides what it may ask: requests go to the service that the page comes
// from, whatever its public address is. The policy would stop any other.
function here(version) {
  return new URL(version, document.baseURI).href;
}

function elsewhere(servers) {
  return servers.map(({ url, description }) => `${description}: ${url}`).join(", ");
}

async function read(version) {
  const answer = await fetch(`openapi/${version}.json`);
  if (!answer.ok) {
    throw new Error(`the service answered ${answer.status}`);
  }
  const description = await answer.json();
  said.textContent =
    `What you try out goes to this service, at ${here(version)}, and what it changes is changed. ` +
    `Programs use the public address (${elsewhere(description.servers)}).`;
  return { ...description, servers: [{ url: here(version), description: "This service" }] };
}

function asked() {
  const version = new URLSearchParams(location.search).get("version");
  return VERSIONS.includes(version) ? version : VERSIONS[0];
}

function begin() {
  return window.SwaggerUIBundle({
    dom_id: "#description",
    spec: {},
    deepLinking: true,
    validatorUrl: null,
    persistAuthorization: false,
    defaultModelsExpandDepth: 0,
    showExtensions: true,
  });
}

async function show(ui, version) {
  select.value = version;
  try {
    ui.specActions.updateSpec(JSON.stringify(await read(version)));
  } catch (error) {
    said.textContent = `The description can't be read: ${error.message}. Load the page again.`;
  }
}

// Swagger UI is dark where its root says so.
function follow(dark) {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.onchange = () => follow(dark);
}

follow(matchMedia("(prefers-color-scheme: dark)"));
const ui = begin();
select.addEventListener("change", () => {
  history.replaceState(null, "", `?version=${select.value}`);
  show(ui, select.value);
});
show(ui, asked());
