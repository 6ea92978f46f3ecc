"""One tiny model for every task head that transformers has an Auto class for, with data that it can be trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

ROWS, LENGTH, WORDS = 7, 8, 30
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SURE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BERT = {**SMALL, **SURE, "vocab_size": WORDS, "max_position_embeddings": 16}
PICTURE = {"image_size": 16, "patch_size": 8, **SMALL, **SURE}
GPT = {"vocab_size": WORDS, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1}
GPT |= {"eos_token_id": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SOUND = {**SMALL, "conv_dim": (8, 8), "conv_stride": (4, 4), "conv_kernel": (4, 4), "num_feat_extract_layers": 2}
SOUND |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "vocab_size": WORDS, "pad_token_id": 0}
SOUND |= {"feat_proj_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
SOUND |= {"final_dropout": 0.0, "layerdrop": 0.0, "mask_time_prob": 0.0, "classifier_proj_size": 16}
SERIES = {"num_input_channels": 2, "context_length": 8, "patch_length": 4, "patch_stride": 4, "d_model": 16}
SERIES |= {"num_attention_heads": 2, "num_hidden_layers": 1, "ffn_dim": 16, "prediction_length": 4, "num_targets": 2}


@dataclass
class Head:
    """A model class, its config's options and its samples; ``refused`` is what our error says, where it must refuse."""

    model: str
    config: dict[str, Any] | Callable[[], Any]
    sample: Callable[[torch.Generator], dict[str, Any]] = field(repr=False)
    refused: str | None = None

    def make(self) -> Any:
        """The model, always the same."""
        kind = getattr(transformers, self.model)
        config = self.config() if callable(self.config) else kind.config_class(**self.config)
        torch.manual_seed(0)
        model = kind(config)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        return model

    def samples(self) -> list[dict[str, Any]]:
        chance = torch.Generator().manual_seed(3)
        return [self.sample(chance) for _ in range(ROWS)]


# -- samples ---------------------------------------------------------------------------------------------------------


def words(chance: torch.Generator, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, WORDS, (length,), generator=chance)


def number(chance: torch.Generator, below: int) -> int:
    return int(torch.randint(below, (), generator=chance))


def picture(chance: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (3, 16, 16)), generator=chance)


def next_words(chance: torch.Generator) -> dict[str, Any]:
    ids = words(chance)
    return {"input_ids": ids, "labels": torch.where(torch.arange(LENGTH) < number(chance, 3), -100, ids)}


def hidden_words(chance: torch.Generator) -> dict[str, Any]:
    ids = words(chance)
    hidden = torch.arange(LENGTH) % 4 == number(chance, 4)
    return {"input_ids": ids.masked_fill(hidden, 1), "labels": ids.masked_fill(~hidden, -100)}


def tagged(chance: torch.Generator) -> dict[str, Any]:
    return {"input_ids": words(chance), "labels": words(chance) % 3}


def one_of(classes: int, inputs: Callable[[torch.Generator], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return lambda chance: {**inputs(chance), "labels": number(chance, classes)}


def text(chance: torch.Generator) -> dict[str, Any]:
    return {"input_ids": words(chance)}


def image(chance: torch.Generator) -> dict[str, Any]:
    return {"pixel_values": picture(chance)}


def sound(chance: torch.Generator) -> dict[str, Any]:
    return {"input_values": picture(chance, 320)}


def answer(chance: torch.Generator) -> dict[str, Any]:
    start = number(chance, LENGTH)
    return {"input_ids": words(chance), "start_positions": start, "end_positions": min(start + 1, LENGTH - 1)}


def with_boxes(chance: torch.Generator) -> dict[str, Any]:
    return {**answer(chance), "bbox": torch.zeros(LENGTH, 4, dtype=torch.long)}


def series(chance: torch.Generator) -> dict[str, Any]:
    return {"past_values": picture(chance, 8, 2), "target_values": picture(chance, 2)}


def boxed(chance: torch.Generator) -> dict[str, Any]:
    boxes = torch.rand(1, 4, generator=chance) / 2
    return {**image(chance), "labels": {"class_labels": torch.tensor([number(chance, 3)]), "boxes": boxes}}


def about_a_picture(chance: torch.Generator) -> dict[str, Any]:
    ids = torch.cat([torch.full((4,), WORDS), words(chance)])
    return {**image(chance), "input_ids": ids, "labels": ids.masked_fill(ids == WORDS, -100)}


# -- models ----------------------------------------------------------------------------------------------------------


def llava() -> Any:
    vision = transformers.CLIPVisionConfig(image_size=16, patch_size=8, **SMALL)
    language = transformers.LlamaConfig(**SMALL, vocab_size=WORDS + 1, max_position_embeddings=32, pad_token_id=0)
    return transformers.LlavaConfig(
        vision_config=vision, text_config=language, image_token_index=WORDS, vision_feature_layer=-1
    )


def clip() -> Any:
    texts = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 16, "eos_token_id": 2}
    return transformers.CLIPConfig(
        text_config=texts, vision_config={"image_size": 16, "patch_size": 8, **SMALL}, projection_dim=8
    )


NO_LOSS = "do not hold labels, logits and one loss"
OTHER = "its own loss is .* but the mean of the rows' losses is"
SHAPES = "labels and logits do not go together"

# The head of each mapping MODEL_FOR_<name>_MAPPING; further models under names of their own.
HEADS: dict[str, Head] = {
    "CAUSAL_LM": Head("GPT2LMHeadModel", GPT, next_words),
    "BertLMHeadModel": Head("BertLMHeadModel", {**BERT, "is_decoder": True}, next_words),
    "CTRLLMHeadModel": Head(
        "CTRLLMHeadModel",
        {"vocab_size": WORDS, "n_positions": 16, "n_embd": 16, "dff": 16, "n_layer": 1, "n_head": 2},
        next_words,
    ),
    "OpenAIGPTLMHeadModel": Head("OpenAIGPTLMHeadModel", GPT, next_words),
    "XLNetLMHeadModel": Head(
        "XLNetLMHeadModel", {"vocab_size": WORDS, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 16}, tagged
    ),
    "XLMWithLMHeadModel": Head(
        "XLMWithLMHeadModel",
        {
            "n_words": WORDS,
            "emb_dim": 16,
            "n_layers": 1,
            "n_heads": 2,
            "pad_index": 0,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        hidden_words,
    ),
    "FlaubertWithLMHeadModel": Head(
        "FlaubertWithLMHeadModel",
        {
            "n_words": WORDS,
            "emb_dim": 16,
            "n_layers": 1,
            "n_heads": 2,
            "pad_index": 0,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        hidden_words,
    ),
    "MASKED_LM": Head("BertForMaskedLM", BERT, hidden_words),
    "PRETRAINING": Head(
        "BertForPreTraining",
        BERT,
        lambda chance: {**hidden_words(chance), "next_sentence_label": number(chance, 2)},
        NO_LOSS,
    ),
    "SEQ_TO_SEQ_CAUSAL_LM": Head(
        "T5ForConditionalGeneration",
        {
            "vocab_size": WORDS,
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 16,
            "num_layers": 1,
            "num_heads": 2,
            "dropout_rate": 0.0,
        }
        | {"decoder_start_token_id": 0},
        next_words,
    ),
    "SEQUENCE_CLASSIFICATION": Head("BertForSequenceClassification", {**BERT, "num_labels": 3}, one_of(3, text)),
    "TOKEN_CLASSIFICATION": Head("BertForTokenClassification", {**BERT, "num_labels": 3}, tagged),
    "QUESTION_ANSWERING": Head("BertForQuestionAnswering", BERT, answer),
    "GPT2ForQuestionAnswering": Head("GPT2ForQuestionAnswering", GPT, answer),
    "XLNetForQuestionAnswering": Head(
        "XLNetForQuestionAnswering",
        {
            "vocab_size": WORDS,
            "d_model": 16,
            "n_layer": 1,
            "n_head": 2,
            "d_inner": 16,
            "start_n_top": 2,
            "end_n_top": 2,
        },
        answer,
        NO_LOSS,
    ),
    "DOCUMENT_QUESTION_ANSWERING": Head("LayoutLMForQuestionAnswering", BERT, with_boxes),
    "MULTIPLE_CHOICE": Head(
        "BertForMultipleChoice",
        BERT,
        one_of(2, lambda chance: {"input_ids": torch.stack([words(chance), words(chance)])}),
    ),
    "NEXT_SENTENCE_PREDICTION": Head("BertForNextSentencePrediction", BERT, one_of(2, text)),
    "IMAGE_CLASSIFICATION": Head("ViTForImageClassification", {**PICTURE, "num_labels": 3}, one_of(3, image)),
    "VIDEO_CLASSIFICATION": Head(
        "VideoMAEForVideoClassification",
        {**PICTURE, "num_frames": 2, "num_labels": 3},
        one_of(3, lambda chance: {"pixel_values": picture(chance, 2, 3, 16, 16)}),
    ),
    "AUDIO_CLASSIFICATION": Head("Wav2Vec2ForSequenceClassification", {**SOUND, "num_labels": 3}, one_of(3, sound)),
    "AUDIO_FRAME_CLASSIFICATION": Head(
        "Wav2Vec2ForAudioFrameClassification",
        {**SOUND, "num_labels": 3},
        lambda chance: {**sound(chance), "labels": torch.eye(3)[torch.randint(3, (20,), generator=chance)]},
        SHAPES,
    ),
    "AUDIO_XVECTOR": Head(
        "Wav2Vec2ForXVector",
        {**SOUND, "num_labels": 3, "tdnn_dim": (8, 8), "tdnn_kernel": (3, 1), "tdnn_dilation": (1, 1)}
        | {"xvector_output_dim": 8},
        one_of(3, sound),
        OTHER,
    ),
    "CTC": Head("Wav2Vec2ForCTC", SOUND, lambda chance: {**sound(chance), "labels": words(chance, 4)}, SHAPES),
    "SPEECH_SEQ_2_SEQ": Head(
        "WhisperForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 4}
        | {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
        | {"max_source_positions": 8, "max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1}
        | {"eos_token_id": 2, "decoder_start_token_id": 1, "dropout": 0.0, "suppress_tokens": None}
        | {"begin_suppress_tokens": None},
        lambda chance: {"input_features": picture(chance, 4, 16), "labels": words(chance)},
    ),
    "CAUSAL_IMAGE_MODELING": Head(
        "ImageGPTForCausalImageModeling",
        {"vocab_size": WORDS + 1, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
        | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        next_words,
    ),
    "IMAGE_TEXT_TO_TEXT": Head("LlavaForConditionalGeneration", llava, about_a_picture),
    "MULTIMODAL_LM": Head("LlavaForConditionalGeneration", llava, about_a_picture),
    "VISUAL_QUESTION_ANSWERING": Head(
        "ViltForQuestionAnswering",
        {**BERT, "image_size": 16, "patch_size": 8, "num_labels": 3},
        lambda chance: {**text(chance), **image(chance), "labels": torch.rand(3, generator=chance)},
        SHAPES,
    ),
    "ZERO_SHOT_IMAGE_CLASSIFICATION": Head(
        "CLIPModel", clip, lambda chance: {**text(chance), **image(chance), "return_loss": True}, NO_LOSS
    ),
    "MASKED_IMAGE_MODELING": Head(
        "ViTForMaskedImageModeling",
        {**PICTURE, "encoder_stride": 8},
        lambda chance: {**image(chance), "bool_masked_pos": torch.tensor([True, False, True, False])},
        NO_LOSS,
    ),
    "SEMANTIC_SEGMENTATION": Head(
        "SegformerForSemanticSegmentation",
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [1, 1], "hidden_sizes": [8, 8], "patch_sizes": [3, 3]}
        | {"strides": [2, 2], "num_attention_heads": [1, 1], "mlp_ratios": [1, 1], "decoder_hidden_size": 8}
        | {"num_labels": 3, "drop_path_rate": 0.0},
        lambda chance: {**image(chance), "labels": torch.randint(3, (16, 16), generator=chance)},
        SHAPES,
    ),
    "OBJECT_DETECTION": Head(
        "YolosForObjectDetection",
        {**PICTURE, "image_size": [16, 16], "num_detection_tokens": 4, "num_labels": 3},
        boxed,
        SHAPES,
    ),
    "DEPTH_ESTIMATION": Head(
        "GLPNForDepthEstimation",
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [1, 1], "hidden_sizes": [8, 8], "patch_sizes": [3, 3]}
        | {"strides": [2, 2], "num_attention_heads": [1, 1], "mlp_ratios": [1, 1], "decoder_hidden_size": 8},
        lambda chance: {**image(chance), "labels": torch.rand(32, 32, generator=chance) + 0.1},
        NO_LOSS,
    ),
    "TIME_SERIES_CLASSIFICATION": Head(
        "PatchTSTForClassification",
        SERIES,
        lambda chance: {"past_values": picture(chance, 8, 2), "target_values": number(chance, 2)},
        NO_LOSS,
    ),
    "TIME_SERIES_REGRESSION": Head("PatchTSTForRegression", SERIES, series, NO_LOSS),
    "TEXT_ENCODING": Head("BertModel", BERT, text, NO_LOSS),
    "IMAGE": Head("ViTModel", PICTURE, image, NO_LOSS),
}
# Mappings without a tiny model here, and why. Those without a loss of their own are refused as TEXT_ENCODING is.
NO_LOSS_OF_THEIR_OWN = {
    "AUDIO_TOKENIZATION",
    "BACKBONE",
    "IMAGE_MATTING",
    "IMAGE_TO_IMAGE",
    "KEYPOINT_DETECTION",
    "KEYPOINT_MATCHING",
    "MASK_GENERATION",
    "NORMAL_ESTIMATION",
    "POINTMAP_ESTIMATION",
    "POSE_ESTIMATION",
    "RETRIEVAL",
    "TABLE_RECOGNITION",
    "TEXT_RECOGNITION",
    "TEXT_TO_SPECTROGRAM",
    "TEXT_TO_WAVEFORM",
    "ZERO_SHOT_OBJECT_DETECTION",
}
LARGE = {  # losses over matched boxes and masks, alignments, tables or quantiles: not of the kinds that are known
    "IMAGE_SEGMENTATION",
    "INSTANCE_SEGMENTATION",
    "RNNT",
    "TABLE_QUESTION_ANSWERING",
    "TDT",
    "TIME_SERIES_PREDICTION",
    "UNIVERSAL_SEGMENTATION",
}


def mappings() -> set[str]:
    """The names of all task heads that this release of transformers has."""
    names = {name.removesuffix("_MAPPING") for name in vars(modeling_auto) if name.endswith("_MAPPING")}
    return {name.removeprefix("MODEL_FOR_") for name in names if name.startswith("MODEL_FOR_")}
