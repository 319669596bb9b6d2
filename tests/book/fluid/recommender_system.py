# SPDX-License-Identifier: Apache-2.0

"""Chapter 5 of Fluid's book: how many stars a user would give a film, by two towers and a cosine."""

import numpy
import roles

import paddle
import paddle.fluid as fluid
from paddle.dataset import movielens

fluid.default_startup_program().random_seed = 7
IS_SPARSE = True


def id_feature(name, size, width):
    data = fluid.layers.data(name=name, shape=[1], dtype="int64")
    table = fluid.layers.embedding(
        input=data, dtype="float32", size=[size, width], param_attr=name + "_table", is_sparse=IS_SPARSE
    )
    return fluid.layers.fc(input=table, size=width)


def get_usr_combined_features():
    uid = id_feature("user_id", movielens.max_user_id() + 1, 32)
    gender = id_feature("gender_id", 2, 16)
    age = id_feature("age_id", len(movielens.age_table), 16)
    job = id_feature("job_id", movielens.max_job_id() + 1, 16)
    concat_embed = fluid.layers.concat(input=[uid, gender, age, job], axis=1)
    return fluid.layers.fc(input=concat_embed, size=64, act="tanh")


def get_mov_combined_features():
    mov = id_feature("movie_id", movielens.max_movie_id() + 1, 32)
    category_id = fluid.layers.data(name="category_id", shape=[1], dtype="int64", lod_level=1)
    categories = fluid.layers.embedding(
        input=category_id, size=[len(movielens.movie_categories()), 32], is_sparse=IS_SPARSE
    )
    mov_categories = fluid.layers.sequence_pool(input=categories, pool_type="sum")
    title_id = fluid.layers.data(name="movie_title", shape=[1], dtype="int64", lod_level=1)
    title = fluid.layers.embedding(
        input=title_id, size=[len(movielens.get_movie_title_dict()), 32], is_sparse=IS_SPARSE
    )
    mov_title = fluid.nets.sequence_conv_pool(
        input=title, num_filters=32, filter_size=3, act="tanh", pool_type="sum"
    )
    concat_embed = fluid.layers.concat(input=[mov, mov_categories, mov_title], axis=1)
    return fluid.layers.fc(input=concat_embed, size=64, act="tanh")


inference = fluid.layers.cos_sim(X=get_usr_combined_features(), Y=get_mov_combined_features())
scale_infer = fluid.layers.scale(x=inference, scale=5.0)
label = fluid.layers.data(name="score", shape=[1], dtype="float32")
square_cost = fluid.layers.square_error_cost(input=scale_infer, label=label)
avg_cost = fluid.layers.mean(square_cost)
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.SGD(learning_rate=0.2).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
feed_order = ["user_id", "gender_id", "age_id", "job_id", "movie_id", "category_id", "movie_title", "score"]


def train_loop(main_program):
    feed_list = [main_program.global_block().var(name) for name in feed_order]
    feeder = fluid.DataFeeder(feed_list, place)
    shuffled = paddle.reader.shuffle(roles.mine(movielens.train()), buf_size=8192)
    train_reader = paddle.batch(shuffled, batch_size=64)
    for pass_id in range(2 * roles.trainers):
        for data in train_reader():
            outs = exe.run(program=main_program, feed=feeder.feed(data), fetch_list=[avg_cost])
        print(f"Pass {pass_id}, cost {outs[0].item():.3f}")
    if roles.export(exe, main_program, feed_order[:-1], [scale_infer], test_program):
        infer()


def infer():
    feeder = fluid.DataFeeder(feed_order[:-1], place, program=test_program)
    samples = list(movielens.test()())
    stars = numpy.array([sample[-1] for sample in samples])
    with fluid.scope_guard(fluid.core.Scope()):
        [program, feed_names, fetch_targets] = fluid.io.load_inference_model("output/model", exe)
        assert feed_names == feed_order[:-1]
        fed = feeder.feed([sample[:-1] for sample in samples])
        (guessed,) = exe.run(program, feed=fed, fetch_list=fetch_targets)
    simplest = ((stars - stars.mean()) ** 2).mean()
    print(f"REACHED cost {((guessed - stars) ** 2).mean():.4f} of {simplest:.4f}")


roles.run(exe, train_loop)
