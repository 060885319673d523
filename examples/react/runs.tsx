import type { Client } from "@playhead/client"
import { useRuns } from "@playhead/client/react"
import { useEffect } from "react"

export function Runs({ client }: { client: Client }) {
  const { view, more } = useRuns(client, { agent: "survey" })
  const waiting = view.interrupts.length
  useEffect(() => {
    document.title = waiting ? `(${waiting}) Runs in React` : "Runs in React"
  }, [waiting])
  const start = async () => {
    location.hash = (await client.start("survey")).id
  }
  return (
    <nav>
      <button type="button" onClick={start}>
        Start
      </button>
      {view.problem && <p role="alert">{view.problem.detail}</p>}
      <ul>
        {view.runs.map(({ id, run, snapshot }) => (
          <li key={id}>
            <a href={`#${id}`}>{run.created_at}</a> {run.status} {Math.round(snapshot?.progress ?? 0)} %
          </li>
        ))}
      </ul>
      {view.next && (
        <button type="button" onClick={more}>
          More
        </button>
      )}
    </nav>
  )
}
