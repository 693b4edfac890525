/* Search without a server. A page that was opened as a file may not start a worker, so the search script is run in a
   hidden frame of the same page instead. Pages that come from a server use an ordinary worker. */
class IFrameWorker extends EventTarget {
  constructor(url) {
    super()
    this.onmessage = null
    this.frame = document.createElement("iframe")
    this.frame.hidden = true
    document.body.appendChild(this.frame)
    const inside = this.frame.contentWindow
    this.ready = new Promise(resolve => { inside.begin = resolve })
    this.listener = event => {
      if (event.source !== inside) return
      const message = new MessageEvent("message", { data: event.data })
      this.dispatchEvent(message)
      if (this.onmessage) this.onmessage(message)
    }
    addEventListener("message", this.listener)
    inside.document.open()
    inside.document.write(`<!doctype html><script>
      var postMessage = message => parent.postMessage(message, "*")
      var importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(resolve => {
        const script = document.createElement("script")
        script.src = url
        script.onload = resolve
        document.head.appendChild(script)
      })), Promise.resolve())
    <\/script><script src="${url}"><\/script><script>begin()<\/script>`)
    inside.document.close()
  }

  postMessage(data) {
    this.ready.then(() => {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data, source: window }))
    })
  }

  terminate() {
    removeEventListener("message", this.listener)
    this.frame.remove()
  }
}

window.IFrameWorker = IFrameWorker
if (location.protocol === "file:") window.Worker = IFrameWorker
