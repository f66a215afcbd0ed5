// How the search orders pages that match alike: what to do comes first, what is for contributors last.
const preferred = [
  [/^(start|guides\/symptoms)/, 3],
  [/^guides/, 2],
  [/^reference/, 1],
  [/^(contributing|changes)/, -5],
];

globalThis.Scorer = {
  score: ([page, , , , score]) => score + (preferred.find(([pattern]) => pattern.test(page))?.[1] ?? 0),
  // The rest as in Sphinx.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
