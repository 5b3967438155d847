// Shows one version's interface description at a time, by Swagger UI.
//
// The key that is typed in stays in this page's memory: it is gone when the page is left.

const VERSIONS = ["v1", "v2"];

const choice = document.querySelector("#version");
const said = document.querySelector("#said");

function addressOf(version) {
  return new URL(version, document.baseURI).href;
}

async function read(version) {
  const answer = await fetch(`openapi/${version}.json`);
  if (!answer.ok) {
    throw new Error(`the service answered ${answer.status}`);
  }
  return answer.json();
}

// Where the page is decides where its requests go: to the service that it comes from, by the name
// that the browser knows it by. Other addresses are other origins to a browser, and the page's
// policy stops requests to them. So the public address is told, and not asked.
function adapted(description, version) {
  description.servers = [{ url: addressOf(version) }];
  description.components.securitySchemes.bearer.description =
    "An API key of the shop. This page forgets it when it is left or loaded again.";
  operationsOf(description)
    .flatMap((operation) => operation.parameters ?? [])
    .filter((parameter) => !parameter.required)
    .forEach(showExampleBeside);
  return description;
}

function operationsOf(description) {
  return Object.values(description.paths).flatMap((methods) => Object.values(methods));
}

// An example fills its field in: all orders would have the same Idempotency-Key, and a list would
// have filters that let nothing through.
function showExampleBeside(parameter) {
  const example = parameter.example ?? parameter.schema.example;
  delete parameter.example;
  delete parameter.schema.example;
  if (example !== undefined) {
    parameter.description = `${parameter.description ?? ""} For example \`${example}\`.`.trim();
  }
}

function tell(version, servers) {
  const addresses = servers.map(({ url, description }) => `${url} (${description})`);
  said.textContent =
    `Requests that you try out go to this service, at ${addressOf(version)}, and are real: ` +
    `an order that you place is placed. Programs use ${addresses.join(" or ")}.`;
}

// Swagger UI's own fields and buttons lack names that a screen reader could say, and the key
// would be shown, and be offered again by the browser in other fields.
const names = {
  wrapComponents: {
    Input: (Original, { React }) => (given) =>
      React.createElement(Original, given.id === "auth-bearer-value" ? asKey(given) : given),
    TextArea: (Original, { React }) => (given) =>
      React.createElement(Original, { "aria-label": "Body", ...given }),
    CloseIcon: (Original, { React }) => (given) => [
      React.createElement(Original, { ...given, key: "icon" }),
      unseen(React, "Close"),
    ],
    ExamplesSelect: labelled(() => "Example"),
    // Parameters, by their types.
    JsonSchema_array: labelled((given) => given.description),
    JsonSchema_boolean: labelled((given) => given.description),
    JsonSchema_string: labelled((given) => given.description),
  },
};

function asKey(given) {
  return { ...given, type: "password", autoComplete: "off", "aria-label": "Value: the API key" };
}

function labelled(nameOf) {
  return (Original, { React }) => (given) =>
    React.createElement("label", {}, unseen(React, nameOf(given)), React.createElement(Original, given));
}

function unseen(React, text) {
  return React.createElement("span", { className: "unseen", key: text }, text);
}

// What was tried out belongs to the version that was shown then: each gets a new Swagger UI, which
// knows nothing but the key that the one before knew.
function renew(description, before) {
  const place = document.createElement("div");
  document.querySelector("#description").replaceChildren(place);
  return window.SwaggerUIBundle({
    domNode: place,
    spec: description,
    deepLinking: true,
    validatorUrl: null,
    persistAuthorization: false,
    defaultModelsExpandDepth: 0,
    showExtensions: true,
    plugins: [names],
    onComplete() {
      if (before) {
        shown.authActions.authorize(before.authSelectors.authorized().toJS());
      }
    },
  });
}

let shown = null;

async function show(version) {
  choice.value = version;
  try {
    const description = await read(version);
    if (choice.value !== version) {
      return; // another was chosen meanwhile
    }
    tell(version, description.servers);
    shown = renew(adapted(description, version), shown);
  } catch (error) {
    said.textContent = `The description can't be read: ${error.message}. Load the page again.`;
  }
}

function asked() {
  const version = new URLSearchParams(location.search).get("version");
  return VERSIONS.includes(version) ? version : VERSIONS[0];
}

// Swagger UI is dark where its root says so.
function follow(dark) {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", follow);
follow(dark);
choice.addEventListener("change", () => {
  history.replaceState(null, "", `?version=${choice.value}`);
  show(choice.value);
});
show(asked());
