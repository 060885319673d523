import type { Client, Connection, Interrupt, RunStore } from "@playhead/client"
import { useRun, useText } from "@playhead/client/react"
import { useState } from "react"

/** What a person is told about the line; about the run itself, `run.status` speaks. */
const LINE: Record<Connection, string> = {
  connecting: "Connecting …",
  live: "Live",
  reconnecting: "The connection is lost. The run goes on, and so does this page in a moment.",
  resyncing: "Reading everything anew …",
  degraded: "The server cannot show what happens right now. The run goes on.",
  ended: "",
  refused: "This run cannot be shown.",
}

export function Run({ client, id }: { client: Client; id: string }) {
  const { view, store } = useRun(client, id)
  return (
    <article>
      <h2>{view.snapshot?.title ?? view.run?.agent ?? "A run"}</h2>
      <p role="status">{view.run?.status}</p>
      <p className="line">{view.problem?.detail ?? LINE[view.connection]}</p>
      <progress max={100} value={view.snapshot?.progress ?? 0} aria-label="Progress" />
      {view.interrupts.map((one) => (
        <Question client={client} asked={one} key={one.id} />
      ))}
      <pre>{view.connection === "ended" ? String(view.run?.result ?? "") : <Text store={store} />}</pre>
      {view.timeline.has_older && (
        <button type="button" onClick={() => store.older()}>
          Older
        </button>
      )}
      <ol>
        {view.events.map((event) => (
          <li key={event.id}>{event.type}</li>
        ))}
      </ol>
    </article>
  )
}

/** Drawn anew with each piece of text, and nothing else is. */
function Text({ store }: { store: RunStore }) {
  return useText(store, "answer")
}

function Question({ client, asked }: { client: Client; asked: Interrupt }) {
  const [wrong, setWrong] = useState("")
  const decide = (approved: boolean) =>
    client.decide(asked.run_id, asked.id, { approved }).catch((error: Error) => setWrong(error.message))
  const { title } = asked.payload as { title: string }
  return (
    <section>
      <p>{title}</p>
      <button type="button" onClick={() => decide(true)}>
        Approve
      </button>
      <button type="button" onClick={() => decide(false)}>
        Reject
      </button>
      <p role="alert">{wrong}</p>
    </section>
  )
}
