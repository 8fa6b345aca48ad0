"""A grammar of constituents: their vectors fall into classes, and trees tell which two classes make a third.

A parser chooses a split by the words on its two sides. A grammar knows what kinds of constituents there are, and which
stand together: it is another kind of parser, which makes other mistakes. The product of both has better trees than
each. Its probabilities are shares in the trees of the parser, as in a treebank (Charniak, 1996, "Tree-bank Grammars"),
and its symbols are found by k-means, so nothing is learnt by gradient.
"""

from collections.abc import Iterable

import numpy as np
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans
from torch import Tensor, nn

from modeling_fast_r2d2.grammar_induction.consensus import minimum_risk_trees, span_posteriors

NUM_CLASSES, NUM_PIECE_CLASSES = 30, 60
SMOOTHING = 0.005  # added to the count of every rule
LEAST_POSTERIOR = 0.05  # of the parser's spans that the grammar may choose


class Grammar(nn.Module):
    """Rules over classes of constituents and of pieces. The classes of pieces follow those of constituents.

    Attributes:
        rules: ``(constituents, all, all)`` float32, the probability of two classes, left and right, in a constituent of
            a class.
        roots: ``(constituents,)`` float32, the probability that a sentence is of a class.
        piece_classes: ``(vocab_size,)`` long, the class of every piece.
    """

    def __init__(self, vocab_size: int):
        super().__init__()
        num_all = NUM_CLASSES + NUM_PIECE_CLASSES
        self.register_buffer("rules", torch.full((NUM_CLASSES, num_all, num_all), num_all**-2))
        self.register_buffer("roots", torch.full((NUM_CLASSES,), 1 / NUM_CLASSES))
        self.register_buffer("piece_classes", torch.full((vocab_size,), NUM_CLASSES))

    @torch.enable_grad()
    def span_posteriors(self, input_ids: Tensor, split_scores: Tensor, lengths: Tensor) -> Tensor:
        """Posteriors of spans (see `consensus`) for trees that are drawn from the product of grammar and parser.

        Spans of which the parser is almost sure that they are no constituents are left out.

        Args:
            input_ids: ``(batch, seq_len)`` long.
            split_scores: ``(batch, seq_len - 1)`` float, of the parser.
            lengths: ``(batch,)`` long, at least 1.

        Returns:
            ``(batch, seq_len, seq_len + 1)`` in the dtype of ``split_scores``.
        """
        kept = kept_spans(split_scores, lengths)
        spans = split_scores.new_zeros(kept.shape, requires_grad=True)
        log_prob = self._log_prob(self.piece_classes[input_ids], split_scores, lengths, kept, spans)
        return torch.autograd.grad(log_prob, spans)[0] if log_prob.requires_grad else spans.detach()

    def _log_prob(self, classes: Tensor, split_scores: Tensor, lengths: Tensor, kept: Tensor, spans: Tensor) -> Tensor:
        """The sum over sentences of log sums over trees, where each constituent counts by its score in ``spans``.

        The inside algorithm, from narrow to wide spans. Vectors over classes are kept normalised, and the logarithms of
        their sizes apart.
        """
        roots, num_all = self.roots.to(split_scores), self.rules.shape[-1]
        row, first = (torch.arange(classes.shape[1], device=kept.device) < lengths[:, None]).nonzero(as_tuple=True)
        number = torch.full(kept.shape, -1, device=kept.device)  # of a span's vector, in the order they are made in
        number[row, first, 1] = torch.arange(len(row), device=kept.device)
        vectors = nn.functional.one_hot(classes[row, first], num_all).to(split_scores)
        sizes, total = vectors.new_zeros(len(vectors)), vectors.new_zeros(())
        for width in range(2, classes.shape[1] + 1):
            row, first, cell, left, right, scores = _candidates(width, kept, number, split_scores)
            if not len(row):
                continue
            number[row, first, width] = len(vectors) + torch.arange(len(row), device=kept.device)
            scores = scores + sizes[left] + sizes[right]
            found, size = self._combine(vectors[left], vectors[right], scores, cell, len(row))
            size = size + spans[row, first, width]
            is_whole = (lengths[row] == width) & (first == 0)
            total = total + (size + (found @ roots).log())[is_whole].sum()
            vectors = torch.cat([vectors, nn.functional.pad(found, (0, num_all - len(roots)))])
            sizes = torch.cat([sizes, size])
        return total

    def _combine(self, left: Tensor, right: Tensor, scores: Tensor, cell: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Vectors of ``count`` cells, each a sum over its candidates, normalised, and the logarithms of their sizes."""
        rules = self.rules.to(left)
        top = scores.new_full((count,), -torch.inf).scatter_reduce(0, cell, scores.detach(), "amax")
        weights = (scores - top[cell]).exp()[:, None]
        of_left = (left @ rules.transpose(0, 1).flatten(1)).unflatten(1, (len(rules), -1))
        pairs = (of_left @ right[:, :, None])[..., 0]
        found = pairs.new_zeros(count, len(rules)).index_add(0, cell, weights * pairs)
        sums = found.sum(-1, keepdim=True)
        return found / sums, sums[:, 0].log() + top


def _candidates(width: int, kept: Tensor, number: Tensor, split_scores: Tensor) -> tuple[Tensor, ...]:
    """The kept spans of a width that have kept parts: row and first token of each; then for every way to split one,
    which of them it is, the numbers of both parts and the parser's log-probability."""
    row, first = (part[:, None] for part in kept[:, :, width].nonzero(as_tuple=True))
    of_left = torch.arange(1, width, device=kept.device)
    left, right = number[row, first, of_left], number[row, first + of_left, width - of_left]
    log_prob = split_scores[row, first + of_left - 1].log_softmax(-1)
    cell, split = ((left >= 0) & (right >= 0)).nonzero(as_tuple=True)
    cells, numbered = cell.unique_consecutive(return_inverse=True)
    return row[cells, 0], first[cells, 0], numbered, left[cell, split], right[cell, split], log_prob[cell, split]


def kept_spans(split_scores: Tensor, lengths: Tensor) -> Tensor:
    """``(batch, num_words, num_words + 1)`` bool: the spans whose posterior is not almost 0; at least one tree."""
    posteriors = span_posteriors(split_scores, lengths)
    kept = posteriors > LEAST_POSTERIOR
    trees = minimum_risk_trees(posteriors, lengths).to(kept.device)
    row, split = (trees[..., 0] >= 0).nonzero(as_tuple=True)
    first, last = trees[row, split].unbind(-1)
    kept[row, first, last - first + 1] = True
    return kept


def learn_grammar(model, batches: Iterable[tuple[dict[str, Tensor], Tensor]], vocab_size: int) -> Grammar:
    """Learn a grammar from trees of the model's own text.

    Args:
        model: a `FastR2D2Model`, in evaluation.
        batches: inputs of the model, and the split scores of the trees to learn from.
    """
    found = [_constituents(model, batch, scores) for batch, scores in batches]
    sizes = np.cumsum([0] + [len(vectors) for vectors, *_ in found])
    vectors = np.concatenate([vectors for vectors, *_ in found])
    vectors = (vectors - vectors.mean(0)) / (vectors.std(0) + 1e-6)
    count = min(NUM_CLASSES, len(vectors))
    classes = MiniBatchKMeans(count, n_init=3, random_state=0, batch_size=8192).fit_predict(vectors)
    # A part is the number of a constituent, or -1 - a piece.
    parts = [np.where(parts < 0, parts, parts + start) for (_, parts, _), start in zip(found, sizes, strict=False)]
    parts, is_root = np.concatenate(parts), np.concatenate([is_root for *_, is_root in found])
    piece_classes = NUM_CLASSES + _classes_of_pieces(parts, classes, vocab_size)
    symbols = np.where(parts < 0, piece_classes[-1 - np.minimum(parts, -1)], classes[np.maximum(parts, 0)])

    grammar = Grammar(vocab_size)
    rules = np.full(grammar.rules.shape, SMOOTHING)
    np.add.at(rules, (classes, *symbols.T), 1)
    roots = 1.0 + np.bincount(classes[is_root], minlength=NUM_CLASSES)
    grammar.rules.copy_(torch.from_numpy(rules / rules.sum((1, 2), keepdims=True)))
    grammar.roots.copy_(torch.from_numpy(roots / roots.sum()))
    grammar.piece_classes.copy_(torch.from_numpy(piece_classes))
    return grammar


def _constituents(model, batch: dict[str, Tensor], split_scores: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a batch's constituents the vectors, the left and the right part, and whether it is a whole sentence."""
    with torch.no_grad():
        output = model(**batch, split_scores=split_scores, encoding="forced", return_dict=True)
    ids, size = batch["input_ids"], batch["input_ids"].shape[1]
    row, split = (output.spans[..., 0] >= 0).nonzero(as_tuple=True)
    first, last = output.spans[row, split].unbind(-1)
    number = torch.full((len(ids), size, size), -1, device=ids.device)
    number[row, first, last] = torch.arange(len(row), device=ids.device)
    left, right = number[row, first, split], number[row, split + 1, last]
    parts = torch.stack([left.where(left >= 0, -1 - ids[row, first]), right.where(right >= 0, -1 - ids[row, last])], 1)
    is_root = last - first + 1 == batch["attention_mask"].sum(1)[row]
    vectors = output.last_hidden_state[row, size + split].float()
    return vectors.cpu().numpy(), parts.cpu().numpy(), is_root.cpu().numpy()


def _classes_of_pieces(parts: np.ndarray, classes: np.ndarray, vocab_size: int) -> np.ndarray:
    """Pieces are of one class if they are parts of the same classes of constituents, on the same sides."""
    counts = np.zeros((vocab_size, 2, NUM_CLASSES))
    for side in (0, 1):
        is_piece = parts[:, side] < 0
        np.add.at(counts[:, side], (-1 - parts[is_piece, side], classes[is_piece]), 1)
    counts = counts.reshape(vocab_size, -1)
    totals = counts.sum(1, keepdims=True)
    points = np.sqrt((counts + 0.5 * counts.sum(0) / counts.sum()) / (totals + 0.5))
    found = KMeans(min(NUM_PIECE_CLASSES, len(np.unique(points, axis=0))), n_init=2, random_state=0)
    return found.fit(points, sample_weight=np.sqrt(totals[:, 0] + 0.1)).labels_
