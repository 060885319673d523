// A text that depends on the time now, such as "2 s ago". It changes by itself, without its screen being drawn.
const ticking = new Set<Tick>()
let timer: ReturnType<typeof setInterval> | undefined

function beat(): void {
  for (const one of ticking) one.beat()
}

export class Tick extends HTMLElement {
  #tell: () => string = () => ""

  set tell(tell: () => string) {
    this.#tell = tell
    this.beat()
  }

  connectedCallback(): void {
    ticking.add(this)
    timer ??= setInterval(beat, 1000)
    this.beat()
  }

  disconnectedCallback(): void {
    ticking.delete(this)
    if (ticking.size) return
    clearInterval(timer)
    timer = undefined
  }

  beat(): void {
    const text = this.#tell()
    if (this.textContent !== text) this.textContent = text
  }
}

customElements.define("ph-tick", Tick)
