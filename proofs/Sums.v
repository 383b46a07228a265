(* The last step of every proof, for finitely many noises: where each is at most K times as likely as the one that it is
   shifted to, and no two are shifted to one, all of them together are at most K times as likely as those that they are
   shifted to. The probability of an answer is the least upper bound of such sums. *)
From Coq Require Import QArith List Lqa.
Import ListNotations.
Open Scope Q_scope.

Fixpoint mass {noise : Type} (weight : noise -> Q) (noises : list noise) : Q :=
  match noises with [] => 0 | x :: rest => weight x + mass weight rest end.

Lemma mass_app : forall (noise : Type) (weight : noise -> Q) first second,
  mass weight (first ++ second) == mass weight first + mass weight second.
Proof.
  intros noise weight. induction first as [|x first IH]; intros second; cbn [app mass]; [lra|]. rewrite IH. lra.
Qed.

Lemma mass_nonneg : forall (noise : Type) (weight : noise -> Q) noises,
  (forall x, 0 <= weight x) -> 0 <= mass weight noises.
Proof.
  intros noise weight noises all. induction noises as [|x noises IH]; cbn [mass]; [lra|]. specialize (all x). lra.
Qed.

Lemma mass_within : forall (noise : Type) (weight : noise -> Q), (forall x, 0 <= weight x) -> forall first second,
  NoDup first -> incl first second -> mass weight first <= mass weight second.
Proof.
  intros noise weight all. induction first as [|x first IH]; intros second once within; cbn [mass].
  - now apply mass_nonneg.
  - inversion once as [|? ? fresh rest]; subst.
    destruct (in_split x second (within x (or_introl eq_refl))) as (left & right & ->).
    assert (less : mass weight first <= mass weight (left ++ right)).
    { apply IH; [exact rest|]. intros y there. specialize (within y (or_intror there)).
      apply in_app_iff in within as [here|[same|here]]; apply in_app_iff; auto. subst. contradiction. }
    rewrite mass_app in *. cbn [mass]. lra.
Qed.

Lemma shifted_once : forall (noise : Type) (shift : noise -> noise) noises, NoDup noises ->
  (forall x y, In x noises -> In y noises -> shift x = shift y -> x = y) -> NoDup (map shift noises).
Proof.
  intros noise shift noises once. induction once as [|x noises fresh once IH]; intros different; cbn [map]; constructor.
  - intros there. apply in_map_iff in there as (y & same & there). apply fresh.
    rewrite (different x y); [exact there|now left|now right|congruence].
  - apply IH. intros a b first second. apply different; now right.
Qed.

Theorem shifted_mass : forall (noise : Type) (weight weight' : noise -> Q) (shift : noise -> noise) K noises noises',
  0 <= K -> (forall x, 0 <= weight' x) -> NoDup noises ->
  (forall x y, In x noises -> In y noises -> shift x = shift y -> x = y) ->
  (forall x, In x noises -> weight x <= K * weight' (shift x)) -> incl (map shift noises) noises' ->
  mass weight noises <= K * mass weight' noises'.
Proof.
  intros noise weight weight' shift K noises noises' positive all once different each within.
  assert (shifted : mass weight noises <= K * mass weight' (map shift noises)).
  { clear once different within. induction noises as [|x noises IH]; cbn [map mass]; [lra|].
    assert (head := each x (or_introl eq_refl)).
    assert (tail := IH (fun y there => each y (or_intror there))). lra. }
  assert (each' := shifted_once noise shift noises once different).
  assert (more := mass_within noise weight' all (map shift noises) noises' each' within).
  assert (K * mass weight' (map shift noises) <= K * mass weight' noises')
    by (rewrite !(Qmult_comm K); apply Qmult_le_compat_r; assumption).
  lra.
Qed.
