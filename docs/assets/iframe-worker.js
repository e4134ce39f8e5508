// The site's search runs in a worker, which browsers refuse to pages that are opened as files. There, this class takes
// the worker's place: it runs the same script in a hidden frame. (`extra.polyfills` in mkdocs.yml loads it.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      const scope = frame.contentWindow;
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      scope.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => load(next)), Promise.resolve());
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = scope.document.createElement("script");
          script.src = address;
          script.onload = resolve;
          script.onerror = reject;
          scope.document.documentElement.appendChild(script);
        });
      this.ready = load(new URL(url, location.href).href);
      this.scope = scope;
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
