"""The path of a question, from `retrieval.library.Library.ask` on. `Answerer.run` (answer.py) calls, in this order:

1. `retrieve` (retrieve.py): the question made to stand alone, `find_blocks` (search.py), which
   encodes it and ranks blocks, and `choose_candidates`, the blocks that an answer may read.
2. `draft_from_rows` (computed.py): a plain question over one table is computed, and step 3 is left out.
3. `AnswerSelector.tokens` (draft.py). A checkpoint that quotes: `candidate_sentences`, `score_sentences` and
   `quote_best` (rank.py) choose the sentence, decide.py the outcome. One that writes: `AnswerGenerator.generate`.
4. The passages shown (passage_builder.py), the assembled answer, `store_answer`.

With a writer, `WrittenAnswerer.run` (retrieval/writers/written.py) takes the place of `Answerer.run`.
"""
