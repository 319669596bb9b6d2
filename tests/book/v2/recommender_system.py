# SPDX-License-Identifier: Apache-2.0
"""Chapter 5 of the v2 book: how many stars a user would give a film, by two towers and a cosine."""

import copy
import itertools
import os
import random

import numpy as np

import paddle.v2 as paddle

trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
trainers = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def mine(reader):
    return lambda: itertools.islice(reader(), trainer_id, None, trainers)


def get_usr_combined_features():
    uid = paddle.layer.data(
        name="user_id", type=paddle.data_type.integer_value(paddle.dataset.movielens.max_user_id() + 1)
    )
    usr_emb = paddle.layer.embedding(input=uid, size=16)
    usr_fc = paddle.layer.fc(input=usr_emb, size=16)

    usr_gender_id = paddle.layer.data(name="gender_id", type=paddle.data_type.integer_value(2))
    usr_gender_emb = paddle.layer.embedding(input=usr_gender_id, size=8)
    usr_gender_fc = paddle.layer.fc(input=usr_gender_emb, size=8)

    usr_age_id = paddle.layer.data(
        name="age_id", type=paddle.data_type.integer_value(len(paddle.dataset.movielens.age_table))
    )
    usr_age_emb = paddle.layer.embedding(input=usr_age_id, size=8)
    usr_age_fc = paddle.layer.fc(input=usr_age_emb, size=8)

    usr_job_id = paddle.layer.data(
        name="job_id", type=paddle.data_type.integer_value(paddle.dataset.movielens.max_job_id() + 1)
    )
    usr_job_emb = paddle.layer.embedding(input=usr_job_id, size=8)
    usr_job_fc = paddle.layer.fc(input=usr_job_emb, size=8)

    return paddle.layer.fc(
        input=[usr_fc, usr_gender_fc, usr_age_fc, usr_job_fc], size=50, act=paddle.activation.Tanh()
    )


def get_mov_combined_features():
    movie_title_dict = paddle.dataset.movielens.get_movie_title_dict()
    mov_id = paddle.layer.data(
        name="movie_id", type=paddle.data_type.integer_value(paddle.dataset.movielens.max_movie_id() + 1)
    )
    mov_emb = paddle.layer.embedding(input=mov_id, size=16)
    mov_fc = paddle.layer.fc(input=mov_emb, size=16)

    mov_categories = paddle.layer.data(
        name="category_id",
        type=paddle.data_type.sparse_binary_vector(len(paddle.dataset.movielens.movie_categories())),
    )
    mov_categories_hidden = paddle.layer.fc(input=mov_categories, size=16)

    mov_title_id = paddle.layer.data(
        name="movie_title", type=paddle.data_type.integer_value_sequence(len(movie_title_dict))
    )
    mov_title_emb = paddle.layer.embedding(input=mov_title_id, size=16)
    mov_title_conv = paddle.networks.sequence_conv_pool(input=mov_title_emb, hidden_size=16, context_len=3)

    return paddle.layer.fc(
        input=[mov_fc, mov_categories_hidden, mov_title_conv], size=50, act=paddle.activation.Tanh()
    )


def main():
    random.seed(trainer_id)  # the order of shuffle
    paddle.init(use_gpu=False)
    usr_combined_features = get_usr_combined_features()
    mov_combined_features = get_mov_combined_features()
    inference = paddle.layer.cos_sim(a=usr_combined_features, b=mov_combined_features, size=1, scale=5)
    cost = paddle.layer.square_error_cost(
        input=inference, label=paddle.layer.data(name="score", type=paddle.data_type.dense_vector(1))
    )
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(
        cost=cost,
        parameters=parameters,
        update_equation=paddle.optimizer.Adam(learning_rate=3e-3),
        is_local=trainers == 1,
    )
    feeding = {
        "user_id": 0,
        "gender_id": 1,
        "age_id": 2,
        "job_id": 3,
        "movie_id": 4,
        "category_id": 5,
        "movie_title": 6,
        "score": 7,
    }
    os.makedirs("output", exist_ok=True)

    def event_handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id % 20 == 0:
            print("Pass %d Batch %d Cost %.2f" % (event.pass_id, event.batch_id, event.cost))
        if isinstance(event, paddle.event.EndPass):
            result = trainer.test(paddle.batch(paddle.dataset.movielens.test(), 256), feeding=feeding)
            print("Test with Pass %d, Cost %f" % (event.pass_id, result.cost))
            with open("output/params_pass_%d.tar" % event.pass_id, "w") as f:
                trainer.save_parameter_to_tar(f)

    trainer.train(
        reader=paddle.batch(
            paddle.reader.shuffle(mine(paddle.dataset.movielens.train()), buf_size=8192),
            batch_size=64 // trainers,
        ),
        event_handler=event_handler,
        feeding=feeding,
        num_passes=3,
    )

    with open("output/params_pass_2.tar", "rb") as f:
        loaded = paddle.parameters.Parameters.from_tar(f)
    user = paddle.dataset.movielens.user_info()[3]
    movie = paddle.dataset.movielens.movie_info()[5]
    feature = user.value() + movie.value()
    infer_dict = copy.copy(feeding)
    del infer_dict["score"]
    prediction = paddle.infer(output_layer=inference, parameters=loaded, input=[feature], feeding=infer_dict)
    score = (prediction[0][0] + 5) / 2
    print("[Predict] User %d Rating Movie %d With Score %.2f" % (user.index, movie.index, score))

    samples = list(paddle.dataset.movielens.test()())
    told = paddle.infer(
        output_layer=inference,
        parameters=loaded,
        input=[sample[:7] for sample in samples],
        feeding=infer_dict,
    )
    scores = np.array([sample[7] for sample in samples])
    print("REACHED cost %.4f by the mean %.4f" % (np.mean((told - scores) ** 2), np.var(scores)))


if __name__ == "__main__":
    main()
