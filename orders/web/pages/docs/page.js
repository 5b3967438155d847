// Shows the OpenAPI document of one version at a time, with Swagger UI.
//
// The key is kept only in this page's memory, until the page is closed or reloaded.

const VERSIONS = ["v1", "v2"];

const choice = document.querySelector("#version");
const status = document.querySelector("#status");

function addressOf(version) {
  return new URL(version, document.baseURI).href;
}

async function fetchDescription(version) {
  const answer = await fetch(`openapi/${version}.json`);
  if (!answer.ok) {
    throw new Error(`the service answered ${answer.status}`);
  }
  return answer.json();
}

// Requests go to the origin that the page was loaded from: the page's policy blocks requests to any
// other. So the public address is shown, but not used.
function adapted(description, version) {
  description.servers = [{ url: addressOf(version) }];
  description.components.securitySchemes.bearer.description =
    "An API key. This page forgets it when you leave or reload it.";
  const parameters = operationsOf(description).flatMap((operation) => operation.parameters ?? []);
  parameters.filter((parameter) => !parameter.required).forEach(showExampleBeside);
  // Swagger UI itself writes what addresses can't contain.
  for (const parameter of parameters) {
    parameter.description = parameter.description?.replace(" In an address, the + of a time zone is %2B.", "");
  }
  return description;
}

function operationsOf(description) {
  return Object.values(description.paths).flatMap((methods) => Object.values(methods));
}

// Swagger UI fills fields with their examples: all orders would have the same Idempotency-Key, and a
// list would have filters that match nothing.
function showExampleBeside(parameter) {
  const example = parameter.example ?? parameter.schema.example;
  delete parameter.example;
  delete parameter.schema.example;
  if (example !== undefined) {
    parameter.description = `${parameter.description ?? ""} For example \`${example}\`.`.trim();
  }
}

function showAddresses(version, servers) {
  const addresses = servers.map(({ url, description }) => `${url} (${description})`);
  status.textContent =
    `Requests that you try out go to this service, at ${addressOf(version)}, and are real: ` +
    `orders are actually placed. Programs use ${addresses.join(" or ")}.`;
}

// Swagger UI's fields and buttons lack accessible names, and its buttons have links in them. Its key field would show the key, and let
// the browser suggest it in other fields.
const names = {
  wrapComponents: {
    Input: (Original, { React }) => (props) =>
      React.createElement(Original, props.id === "auth-bearer-value" ? asKey(props) : props),
    TextArea: (Original, { React }) => (props) =>
      React.createElement(Original, { "aria-label": "Body", ...props }),
    CloseIcon: (Original, { React }) => (props) => [
      React.createElement(Original, { ...props, key: "icon" }),
      unseen(React, "Close"),
    ],
    DeepLink: (Original, { React }) => ({ text }) => React.createElement("span", {}, text),
    ExamplesSelect: labelled(() => "Example"),
    // Parameters, by their types.
    JsonSchema_array: labelled((props) => props.description),
    JsonSchema_boolean: labelled((props) => props.description),
    JsonSchema_string: labelled((props) => props.description),
  },
};

function asKey(props) {
  return { ...props, type: "password", autoComplete: "off", "aria-label": "Value: the API key" };
}

function labelled(nameOf) {
  return (Original, { React }) => (props) =>
    React.createElement("label", {}, unseen(React, nameOf(props)), React.createElement(Original, props));
}

function unseen(React, text) {
  return React.createElement("span", { className: "unseen", key: text }, text);
}

// Each version gets a new Swagger UI, without the previous one's answers but with its key.
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
    const description = await fetchDescription(version);
    if (choice.value !== version) {
      return; // another version was chosen meanwhile
    }
    showAddresses(version, description.servers);
    shown = renew(adapted(description, version), shown);
  } catch (error) {
    status.textContent = `Can't load the description: ${error.message}. Reload the page.`;
  }
}

function requestedVersion() {
  const version = new URLSearchParams(location.search).get("version");
  return VERSIONS.includes(version) ? version : VERSIONS[0];
}

// Swagger UI is dark if the root element has a class.
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
show(requestedVersion());
