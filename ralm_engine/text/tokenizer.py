"""Tokens with the characters they came from; no special tokens, ever."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenisedText:
    """The tokens of one text. T = tokens.

    Attributes:
        token_ids: int32 [T].
        begin, end: character offsets of each token in the text, int64 [T]. Tokens that are parts
            of one character all carry that whole character.
    """

    token_ids: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        assert self.token_ids.shape == self.begin.shape == self.end.shape

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.token_ids)

    def head(self, num_tokens: int) -> TokenisedText:
        """The first tokens, at most num_tokens."""
        return TokenisedText(
            token_ids=self.token_ids[:num_tokens],
            begin=self.begin[:num_tokens],
            end=self.end[:num_tokens],
        )


class TextTokenizer:
    """A tokenizer that treats all text as plain text and adds nothing to it.

    Args:
        tokenizer: copied; its truncation and padding are left as they are and play no part here.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        own = Tokenizer.from_str(tokenizer.to_str())
        own.no_truncation()
        own.no_padding()
        # The fingerprint comes first: this switch is about input, not about the vocabulary.
        self._fingerprint = hashlib.sha256(own.to_str().encode("utf-8")).hexdigest()
        own.encode_special_tokens = True
        self._tokenizer = own

    @property
    def fingerprint(self) -> str:
        """Hex sha256 of the serialised tokenizer, truncation and padding aside."""
        return self._fingerprint

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, added tokens included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> TokenisedText:
        """Tokenises one text of any length, with offsets."""
        encoding: Encoding = self._tokenizer.encode(text, add_special_tokens=False)
        offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        return TokenisedText(
            token_ids=np.array(encoding.ids, dtype=np.int32),
            begin=np.ascontiguousarray(offsets[:, 0]),
            end=np.ascontiguousarray(offsets[:, 1]),
        )

    def encode_batch(self, texts: Sequence[str], *, max_length: int) -> list[npt.NDArray[np.int32]]:
        """The first max_length tokens of every text, without offsets, on all cores."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids[:max_length], dtype=np.int32) for encoding in encodings]
