"""One run in plain rows, changed by the decisions alone: what the tests of the decisions work on."""

from dataclasses import replace

from playhead.core import decision, event, lease, lifecycle
from playhead.core.interrupt import Question
from playhead.core.run import Failure, NewRun, Outcome, Policy, Status

FINALS = set(event.FINAL_TYPES.values())


def outcome(status, **fields):
    return replace(Outcome(status, result=b"1", failure=Failure("code", "words"), partial=b'"half"'), **fields)


ONE_TRY = Policy()


class Record:
    """One run's rows, changed by the decisions alone."""

    def __init__(self, policy=ONE_TRY):
        self.at = 1_000_000
        change = lifecycle.create(NewRun("r", "acme", "echo", b"{}", policy, {}), 1, self.at)
        self.run = replace(change.run, rev=0)
        self.facts, self.interrupts, self.ends, self.n = [], {}, [], 0
        self.apply(change)

    def apply(self, change):
        before = self.run
        assert change.run.rev == before.rev + len(change.facts)
        self.run = change.run
        self.facts += change.facts
        self.interrupts |= {one.id: one for one in change.interrupts}
        if change.ended:
            self.ends.append(change.ended)
        return change

    @property
    def types(self):
        return [fact.type for fact in self.facts]

    @property
    def finals(self):
        return [name for name in self.types if name in FINALS]

    def asked(self):
        return list(self.interrupts.values())

    def start(self):
        if lease.may_start(self.run, self.at):
            self.apply(lifecycle.start(self.run, "p", self.at))

    def finish(self, status=Status.SUCCEEDED, token=None, **fields):
        token = self.run.token if token is None else token
        self.apply(lifecycle.finish(self.run, token, outcome(status, **fields), self.asked(), self.at))

    def cancel(self, by="ann"):
        self.apply(lifecycle.cancel(self.run, self.asked(), by, None, self.at))

    def lose(self):
        self.apply(lifecycle.lose(self.run, self.asked(), self.at, b'"half"'))

    def ask(self, key="q", token=None, within=None, published=0):
        self.n += 1
        token = self.run.token if token is None else token
        question = Question(key, "approval", b"{}", within)
        change, one = decision.ask(self.run, token, question, self.asked(), f"i{self.n}", None, self.at, published)
        self.apply(change)
        return one

    def decide(self, answer=b"true", index=-1):
        target = list(self.interrupts)[index]
        change, _ = decision.decide(self.run, self.asked(), target, answer, "ann", self.at)
        self.apply(change)

    def lapse(self):
        for change in decision.lapse(self.run, self.asked(), self.at):
            self.apply(change)
