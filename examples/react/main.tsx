import { createClient } from "@playhead/client"
import { StrictMode, useSyncExternalStore } from "react"
import { createRoot } from "react-dom/client"
import { Run } from "./run"
import { Runs } from "./runs"

export const client = createClient({ base: "/playhead/" })
const place = {
  subscribe: (changed: () => void) => {
    addEventListener("hashchange", changed)
    return () => removeEventListener("hashchange", changed)
  },
  get: () => location.hash.slice(1),
}

function Page() {
  const id = useSyncExternalStore(place.subscribe, place.get)
  return (
    <main>
      <Runs client={client} />
      {id && <Run client={client} id={id} key={id} />}
    </main>
  )
}

const root = document.getElementById("app")
if (root)
  createRoot(root).render(
    <StrictMode>
      <Page />
    </StrictMode>,
  )
