import { EventSource } from "eventsource"

const source = new EventSource(process.argv[2])
source.onmessage = ({ data }) => console.log(data)
source.addEventListener("end", ({ data }) => console.log(data)) // the next answer is 204: it returns no more
