"""A Keras 3 model on torch that trains on fewer samples.

KERAS_BACKEND=torch python examples/keras_train.py --epochs 8
"""

import argparse

import keras

from infobatch.integrations.keras import PrunedData, PrunedModel
from infobatch.lab.data import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    args = parser.parse_args()

    data = fashion.load()
    train, test = data.train.head(args.samples), data.test
    inputs = keras.Input((28, 28))
    hidden = keras.layers.Dense(128, activation="relu")(keras.layers.Flatten()(inputs))
    model = PrunedModel(inputs, keras.layers.Dense(10, activation="softmax")(hidden))  # in place of keras.Model
    model.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    pruned = PrunedData(
        train.images / 255.0, train.labels.astype("int64"), args.epochs, 64, method="infobatch-adaptive"
    )
    model.fit(pruned, epochs=args.epochs, validation_data=(test.images / 255.0, test.labels.astype("int64")), verbose=2)
    print(pruned.train_data.summary())


if __name__ == "__main__":
    main()
