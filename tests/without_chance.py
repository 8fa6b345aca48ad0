"""Settings of a model that leave nothing to chance, in training, too."""

WITHOUT_CHANCE = {
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "parser_dropout_prob": 0.0,
    "split_noise": 0.0, "choice_noise": 0.0,
}  # fmt: skip
