"""`python3 -m unittest discover webhooks/image-policy`"""

import unittest

from server import answer, judge


def pod(image):
    return {"spec": {"containers": [{"name": "c", "image": image}]}}


class ImagePolicy(unittest.TestCase):
    def test_known_registries_and_fixed_tags_are_let_in(self):
        for image in ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause@sha256:" + "a" * 64):
            self.assertEqual(judge(pod(image), ["registry.k8s.io/"]), [])

    def test_everything_else_is_not(self):
        for image in ("nginx:1.27", "registry.k8s.io/pause", "registry.k8s.io/pause:latest"):
            self.assertEqual(len(judge(pod(image), ["registry.k8s.io/"])), 1)

    def test_the_answer_echoes_the_uid(self):
        review = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "object": pod("nginx")}}
        response = answer(review, ["registry.k8s.io/"])["response"]
        self.assertEqual((response["uid"], response["allowed"], response["status"]["code"]), ("u", False, 403))


if __name__ == "__main__":
    unittest.main()
