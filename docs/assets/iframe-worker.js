// A browser starts no worker for a page that was opened as a file, and the theme searches in one.
// There, a hidden frame runs the same script and passes the same messages; from a server nothing is changed.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe")
    #ready

    constructor(address) {
      super()
      const script = new URL(address, document.baseURI)
      this.#frame.hidden = true
      this.#frame.title = "search"
      this.#ready = new Promise((resolve) => {
        this.#frame.onload = () => {
          const inside = this.#frame.contentWindow
          if (inside.started) return
          inside.started = true
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          const element = inside.document.createElement("script")
          element.onload = resolve
          element.src = script
          inside.document.body.append(element)
        }
      })
      const show = () => document.body.append(this.#frame)
      document.body ? show() : addEventListener("DOMContentLoaded", show)
    }

    async postMessage(data) {
      await this.#ready
      const inside = this.#frame.contentWindow
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }

    terminate() {
      this.#frame.remove()
    }
  }
}
