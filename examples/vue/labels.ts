/** The names that the server and the element say, in the words of this page. What is not here is shown as it is. */
export const labels: Record<string, string> = {
  queued: "Wartet auf den Start",
  running: "Läuft",
  waiting: "Wartet auf dich",
  succeeded: "Fertig",
  connecting: "Verbindet",
  live: "Live",
  reconnecting: "Verbindung verloren",
  ended: "Beendet",
  approve: "Ja",
  reject: "Nein",
  older: "Ältere",
  progress: "Fortschritt",
  count_lines: "Zeilen zählen",
  package_counted: "Paket gezählt",
}
